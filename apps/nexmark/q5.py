"""Nexmark's query 5: hot items."""

from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import functions as F

from .events import BID, TIME, WATERMARK_DELAY, EventOptions, complete

HOTTEST: Final = pa.schema([("start", TIME), ("auction", pa.int64()), ("num", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class HotItems(EventOptions, hw.App):
    """Nexmark Q5: which auctions got the most bids in the last seconds."""

    name: ClassVar[str] = "nexmark.q5"

    size: str = "10 seconds"
    slide: str = "2 seconds"
    parallelism: int = 1  # instances that count

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Count the bids of every auction, then find the largest count of each window."""
        windows = F.window("dateTime", self.size, self.slide)
        bids = (
            rows.select("kind", "auction", "dateTime")
            .with_watermark("dateTime", WATERMARK_DELAY)
            .filter(complete(BID, "auction"), name="bids")
        )
        counts = (
            bids.key_by("auction")
            .window(windows)
            .agg(F.count().alias("num"), name="count", parallelism=self.parallelism)
        )
        # All counts of a window have the same last instant, so a window that ends behind it has just those, and all.
        ends = F.window("last", self.slide, start=timedelta(microseconds=windows.size_us % windows.slide_us))
        hottest = (
            counts.map(with_last_instant, name="last-instant")
            .window(ends)
            .apply(most_bids, schema=HOTTEST, name="hottest")
        )
        return hottest.select(*HOTTEST.names)


def with_last_instant(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Give every count the last instant of its window."""
    start, end = pc.struct_field(counts["window"], "start"), pc.struct_field(counts["window"], "end")
    last = pc.subtract(end, pa.scalar(timedelta(microseconds=1)))
    return pa.record_batch({"start": start, "last": last, "auction": counts["auction"], "num": counts["num"]})


def most_bids(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Keep the auctions of one window with the most bids: several, if they have equally many."""
    return counts.filter(pc.equal(counts["num"], pc.max(counts["num"]))).select(HOTTEST.names)
