"""Nexmark's query 8: monitor new users."""

from dataclasses import dataclass
from typing import ClassVar

import headwater as hw
from headwater import functions as F

from .events import AUCTION, PERSON, WATERMARK_DELAY, EventOptions, complete


@dataclass(frozen=True, kw_only=True)
class NewUsers(EventOptions, hw.App):
    """Nexmark Q8: people who came to the site and opened an auction within the same ten seconds."""

    name: ClassVar[str] = "nexmark.q8"

    size: str = "10 seconds"
    slide: str | None = None  # as long as the window, unless it is said; Falcon has an hour that slides by a second
    parallelism: int = 1  # instances that share the people

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Join people and their auctions in windows, and name everyone once a window."""
        events = rows.select("kind", "id", "name", "seller", "dateTime").with_watermark("dateTime", WATERMARK_DELAY)
        people = events.filter(complete(PERSON, "id"), name="people").select("id", "name", "dateTime")
        auctions = events.filter(complete(AUCTION, "seller"), name="auctions").select("seller", "dateTime")
        sellers = people.join(
            auctions,
            [("id", "seller")],
            window=F.window("dateTime", self.size, self.slide),
            name="sellers",
            parallelism=self.parallelism,
        )
        # A window's pairs come while it is open, so its length is long enough to remember who was named.
        return sellers.select("id", "name", "window.start").dedup(
            "id", "start", event_time="start", within=self.size, name="once", parallelism=self.parallelism
        )
