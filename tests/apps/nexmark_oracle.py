"""Nexmark's queries in plain Python, event by event, written from the specification.

Event time is told as Headwater tells it: a row is late for a window that ends at or before the latest time seen so far
minus four seconds, in whole milliseconds.
"""

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
DELAY = dt.timedelta(seconds=4)


def micros(instant: dt.datetime) -> int:
    return (instant - EPOCH) // dt.timedelta(microseconds=1)


def with_watermark(events: Sequence[Row]) -> Iterator[tuple[Row, int]]:
    """Yield every event with the watermark that those before it have made."""
    watermark = -(2**62)
    for event in events:
        yield event, watermark
        latest_ms = micros(event["dateTime"] - DELAY) // 1_000
        watermark = max(watermark, latest_ms * 1_000)


def windows_of(event: Row, size_us: int, slide_us: int, watermark: int) -> Iterator[int]:
    """Yield the starts of the windows that an event is in and that have not ended yet."""
    at = micros(event["dateTime"])
    start = at - at % slide_us
    while start > at - size_us:
        if start + size_us > watermark:
            yield start
        start -= slide_us


def hot_items(events: Sequence[Row], size_s: int, slide_s: int) -> list[tuple[int, int, int]]:
    """Query 5: the auctions with the most bids of each window, as (start, auction, number)."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for event, watermark in with_watermark(events):
        if event["kind"] == "bid":
            for start in windows_of(event, size_s * 1_000_000, slide_s * 1_000_000, watermark):
                counts[start][event["auction"]] += 1
    return sorted(
        (start, auction, number)
        for start, of_window in counts.items()
        for auction, number in of_window.items()
        if number == max(of_window.values())
    )


def highest_bids(events: Sequence[Row], size_s: int) -> list[tuple[int, int, int, int]]:
    """Query 7: the bids with the highest price of each window, as (time, price, auction, bidder)."""
    bids: dict[int, list[Row]] = defaultdict(list)
    for event, watermark in with_watermark(events):
        if event["kind"] == "bid":
            for start in windows_of(event, size_s * 1_000_000, size_s * 1_000_000, watermark):
                bids[start].append(event)
    return sorted(
        (micros(bid["dateTime"]), bid["price"], bid["auction"], bid["bidder"])
        for of_window in bids.values()
        for bid in of_window
        if bid["price"] == max(one["price"] for one in of_window)
    )


def selling_prices(events: Sequence[Row]) -> list[tuple[int, int, int, int, float]]:
    """Query 6: every sale as (seller, time, auction, price, average of the seller's last ten)."""
    timely = [event for event, watermark in with_watermark(events) if micros(event["dateTime"]) >= watermark]
    bids = defaultdict(list)
    for event in timely:
        if event["kind"] == "bid":
            bids[event["auction"]].append(event)
    sales = []
    for auction in timely:
        if auction["kind"] == "auction":
            prices = [
                b["price"] for b in bids[auction["id"]] if auction["dateTime"] <= b["dateTime"] <= auction["expires"]
            ]
            if prices:
                sales.append((auction["seller"], micros(auction["expires"]), auction["id"], max(prices)))
    last: dict[int, list[int]] = defaultdict(list)
    found = []
    for sale in sorted(sales):
        last[sale[0]] = [*last[sale[0]], sale[3]][-10:]
        found.append((*sale, sum(last[sale[0]]) / len(last[sale[0]])))
    return found


def new_users(events: Sequence[Row], size_s: int, slide_s: int) -> list[tuple[int, int, str]]:
    """Query 8: who came and opened an auction in the same window, as (start, person, name)."""
    people: dict[int, set[tuple[int, str]]] = defaultdict(set)
    sellers: dict[int, set[int]] = defaultdict(set)
    for event, watermark in with_watermark(events):
        for start in windows_of(event, size_s * 1_000_000, slide_s * 1_000_000, watermark):
            if event["kind"] == "person":
                people[start].add((event["id"], event["name"]))
            elif event["kind"] == "auction":
                sellers[start].add(event["seller"])
    return sorted((start, *person) for start in people for person in people[start] if person[0] in sellers[start])
