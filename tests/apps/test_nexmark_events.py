"""Nexmark's events have the proportions, ids, hot spots and sizes of the original generator."""

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest

from apps.nexmark.events import EventOptions

Row = dict[str, Any]
COUNT = 20_000


def events(count: int = COUNT, first: int = 0, **options: Any) -> list[Row]:
    rows: list[Row] = EventOptions(**options).made()(first, count).to_pylist()
    return rows


def of_kind(rows: list[Row], kind: str) -> list[tuple[int, Row]]:
    return [(number, row) for number, row in enumerate(rows) if row["kind"] == kind]


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    kinds = [row["kind"] for row in events(500)]
    assert kinds == (["person"] + 3 * ["auction"] + 46 * ["bid"]) * 10


def test_people_and_auctions_are_numbered_in_order_from_a_thousand() -> None:
    rows = events()
    for kind in ("person", "auction"):
        ids = [row["id"] for _, row in of_kind(rows, kind)]
        assert ids == list(range(1_000, 1_000 + len(ids)))


def test_an_event_has_the_fields_of_its_kind_only() -> None:
    common = {"kind", "dateTime", "extra"}
    fields = {
        "person": {"id", "name", "emailAddress", "creditCard", "city", "state"},
        "auction": {"id", "itemName", "description", "initialBid", "reserve", "expires", "seller", "category"},
        "bid": {"auction", "bidder", "price", "channel", "url"},
    }
    for row in events(200):
        assert {name for name, value in row.items() if value is not None} == common | fields[row["kind"]]


@pytest.mark.parametrize("ratio", [1, 2, 100])
def test_all_but_one_in_so_many_bids_are_for_the_hot_auction(ratio: int) -> None:
    """It is the first of every hundred auctions; some others name it by chance."""
    rows = of_kind(events(hot_auction_ratio=ratio), "bid")
    hot = sum(row["auction"] == 1_000 + (number // 50 * 3 + 2) // 100 * 100 for number, row in rows)
    assert abs(hot / len(rows) - (1 - 1 / ratio)) < 0.02


def test_three_of_four_sellers_and_bidders_are_the_hot_ones() -> None:
    rows = events()
    for kind, column, offset in (("auction", "seller", 0), ("bid", "bidder", 1)):
        found = of_kind(rows, kind)
        hot = sum(row[column] == 1_000 + number // 50 // 100 * 100 + offset for number, row in found)
        assert abs(hot / len(found) - 0.75) < 0.03


def test_bidders_and_sellers_are_people_and_bids_are_for_auctions_in_flight() -> None:
    """Or for those that come soon. The original adds the first id to bidders twice, and no person has theirs."""
    for number, row in enumerate(events()):
        newest, last_auction = 1_000 + number // 50, 1_000 + number // 50 * 3 + 2
        if row["kind"] == "bid":
            assert 1_000 <= row["bidder"] <= newest + 10
            assert max(1_000, last_auction - 200) <= row["auction"] <= last_auction + 10
        elif row["kind"] == "auction":
            assert 1_000 <= row["seller"] <= newest + 10
            assert 10 <= row["category"] <= 14
            assert row["reserve"] > row["initialBid"]


def test_prices_are_as_likely_in_each_power_of_ten() -> None:
    powers = Counter(int(math.log10(row["price"] / 100)) for _, row in of_kind(events(), "bid"))
    assert all(abs(powers[power] / sum(powers.values()) - 1 / 6) < 0.02 for power in range(6))


def test_event_time_goes_at_its_rate_and_auctions_stay_open_for_twice_the_time_of_a_hundred_at_most() -> None:
    rows = events(event_rate=500)
    times = [row["dateTime"].timestamp() for row in rows]
    assert np.allclose(np.diff(times), 1 / 500, atol=1e-5)
    open_s = [(row["expires"] - row["dateTime"]).total_seconds() for _, row in of_kind(rows, "auction")]
    horizon_s = 100 * 50 / 3 / 500
    assert 0 < min(open_s) < max(open_s) < 2 * horizon_s + 0.01
    assert abs(np.mean(open_s) / horizon_s - 1) < 0.1


@pytest.mark.parametrize(("kind", "average"), [("person", 200), ("auction", 500), ("bid", 100)])
def test_events_have_the_sizes_of_the_original(kind: str, average: int) -> None:
    """Numbers and times count eight bytes; channel and address of a bid come on top, as there."""
    sizes = [
        sum(
            len(value) if isinstance(value, str) else 8
            for name, value in row.items()
            if value is not None and name not in ("kind", "channel", "url", "category")
        )
        for _, row in of_kind(events(), kind)
    ]
    assert abs(np.mean(sizes) / average - 1) < 0.05


def test_half_of_the_channels_are_hot_and_each_has_its_address() -> None:
    bids = [row for _, row in of_kind(events(), "bid")]
    hot = sum(row["channel"] in ("Google", "Facebook", "Baidu", "Apple") for row in bids)
    assert abs(hot / len(bids) - 0.5) < 0.02
    assert len({(row["channel"], row["url"]) for row in bids}) == len({row["channel"] for row in bids})
    assert all(row["url"].startswith("https://www.nexmark.com/") for row in bids)
    assert any("&channel_id=" in row["url"] for row in bids)


def test_out_of_order_events_are_the_same_in_another_order_within_their_group() -> None:
    straight, stirred = events(600), events(600, out_of_order_group=30)
    assert straight != stirred
    for start in range(0, 600, 30):
        group = sorted(stirred[start : start + 30], key=lambda row: row["dateTime"])
        assert group == straight[start : start + 30]


def test_another_seed_gives_other_events() -> None:
    assert events(100, seed=1) != events(100, seed=2)


@pytest.mark.parametrize("option", ["event_rate", "hot_auction_ratio", "in_flight_auctions", "out_of_order_group"])
def test_what_no_stream_can_have_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=option):
        EventOptions(**{option: 0})
