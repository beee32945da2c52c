"""Nexmark's stream of events: people who come to an auction site, auctions they open, bids they make.

Of every 50 events one is a person, three are auctions and 46 are bids. Event `n` is a pure function of `n`, by the
formulas of the original generator, so ids follow from the number too: after `n` events there have been `n // 50 + 1`
people. Some auctions, sellers and bidders are hot: all but one in `hot_auction_ratio` bids go to one auction, which
another replaces after every hundred. Bidders have the ids of people; the original adds the first person's id to them
twice, so that none of them is ever found.

One row is one event, with the fields that its kind has in the original; all others are null.
"""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw

from ..chance import uniform, whole
from .texts import CHANNELS, HOT_CHANNELS, POOL, texts

PERSON: Final = "person"
AUCTION: Final = "auction"
BID: Final = "bid"

BASE_TIME: Final = datetime(2015, 7, 15, tzinfo=UTC)
WATERMARK_DELAY: Final = "4 seconds"

EPOCH_EVENTS: Final = 50  # one person, three auctions, 46 bids
EPOCH_AUCTIONS: Final = 3
FIRST_PERSON_ID: Final = 1_000
FIRST_AUCTION_ID: Final = 1_000
FIRST_CATEGORY_ID: Final = 10
CATEGORIES: Final = 5
HOT_EVERY: Final = 100  # one of so many auctions or people in a row is the hot one
PERSON_ID_LEAD: Final = 10  # people and auctions may be named that many before they come
AUCTION_ID_LEAD: Final = 10

TIME: Final = pa.timestamp("us", "UTC")
SCHEMA: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("dateTime", TIME),
        ("extra", pa.string()),
        ("id", pa.int64()),  # of a person or an auction
        ("name", pa.string()),
        ("emailAddress", pa.string()),
        ("creditCard", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("itemName", pa.string()),
        ("description", pa.string()),
        ("initialBid", pa.int64()),  # cents, as all money
        ("reserve", pa.int64()),
        ("expires", TIME),
        ("seller", pa.int64()),
        ("category", pa.int64()),
        ("auction", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("url", pa.string()),
    ]
)

_BASE_US: Final = int(BASE_TIME.timestamp()) * 1_000_000
_KINDS: Final = pa.array([PERSON, AUCTION, BID])
_SHUFFLE: Final = 953  # a prime: its multiples go through a group of events in another order

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class EventOptions:
    """What can be said about the events, and the events themselves."""

    wire: ClassVar[hw.Wire] = "json"

    seed: int = 1
    event_rate: int = 10_000  # events in a second of event time, whatever the rate at which they come
    out_of_order_group: int = 1  # events come in another order within groups of so many
    hot_auction_ratio: int = 2  # of so many bids all but one are for the hot auction
    hot_seller_ratio: int = 4
    hot_bidder_ratio: int = 4
    in_flight_auctions: int = 100
    active_people: int = 1_000

    def __post_init__(self) -> None:
        """Refuse what no stream can have."""
        for field in fields(EventOptions):
            if field.name != "seed" and getattr(self, field.name) < 1:
                raise ValueError(f"{field.name}={getattr(self, field.name)} has to be at least 1")
        if self.out_of_order_group % _SHUFFLE == 0:
            raise ValueError(f"out_of_order_group={self.out_of_order_group} may not be a multiple of {_SHUFFLE}")

    @property
    def schema(self) -> pa.Schema:
        """The columns of an event."""
        return SCHEMA

    def made(self) -> "Events":
        """Return a generator of events."""
        return Events(self)


@dataclass(frozen=True)
class Events:
    """Makes events from their numbers."""

    options: EventOptions

    def __call__(self, first: int, count: int) -> pa.RecordBatch:
        """Make events `first` to `first + count - 1`."""
        numbers = self._shuffled(np.arange(first, first + count))
        epoch, offset = np.divmod(numbers, EPOCH_EVENTS)
        kinds = np.where(offset == 0, 0, np.where(offset <= EPOCH_AUCTIONS, 1, 2))
        people, auctions, bids = (np.flatnonzero(kinds == kind) for kind in range(3))
        columns = {
            "kind": _KINDS.take(pa.array(kinds)),
            "dateTime": pa.array(self._time_us(numbers), TIME),
            "extra": self._extra(numbers, kinds),
            "id": _sparse(count, (people, epoch[people] + FIRST_PERSON_ID), (auctions, _auction_id(numbers[auctions]))),
            **self._people(count, people, numbers[people]),
            **self._auctions(count, auctions, numbers[auctions]),
            **self._bids(count, bids, numbers[bids]),
        }
        return pa.record_batch([columns[name] for name in SCHEMA.names], schema=SCHEMA)

    def _shuffled(self, numbers: Numbers) -> Numbers:
        group = self.options.out_of_order_group
        return numbers - numbers % group + numbers * _SHUFFLE % group

    def _time_us(self, numbers: Numbers) -> Numbers:
        return _BASE_US + numbers * 1_000_000 // self.options.event_rate

    def _extra(self, numbers: Numbers, kinds: Numbers) -> pa.Array:
        seed = self.options.seed
        return texts(seed).extras.take(pa.array(kinds * POOL + whole(numbers, POOL, seed, 1)))

    def _people(self, count: int, rows: Numbers, numbers: Numbers) -> dict[str, pa.Array]:
        seed, known = self.options.seed, texts(self.options.seed)
        pools = {
            "name": known.names,
            "emailAddress": known.emails,
            "creditCard": known.cards,
            "city": known.cities,
            "state": known.states,
        }
        return {
            name: pool.take(_sparse(count, (rows, whole(numbers, len(pool), seed, 10 + salt))))
            for salt, (name, pool) in enumerate(pools.items())
        }

    def _auctions(self, count: int, rows: Numbers, numbers: Numbers) -> dict[str, pa.Array]:
        options, seed, known = self.options, self.options.seed, texts(self.options.seed)
        hot = whole(numbers, options.hot_seller_ratio, seed, 20) > 0
        hot_seller = _last_person(numbers) // HOT_EVERY * HOT_EVERY
        seller = np.where(hot, hot_seller, self._any_person(numbers, 21)) + FIRST_PERSON_ID
        initial = _price(numbers, seed, 22)
        horizon_events = options.in_flight_auctions * EPOCH_EVENTS // EPOCH_AUCTIONS
        horizon_ms = (self._time_us(numbers + horizon_events) - self._time_us(numbers)) // 1_000
        open_ms = 1 + whole(numbers, np.maximum(2 * horizon_ms, 1), seed, 24)
        expires = self._time_us(numbers) + open_ms * 1_000
        return {
            "itemName": known.items.take(_sparse(count, (rows, whole(numbers, POOL, seed, 25)))),
            "description": known.descriptions.take(_sparse(count, (rows, whole(numbers, POOL, seed, 26)))),
            "initialBid": _sparse(count, (rows, initial)),
            "reserve": _sparse(count, (rows, initial + _price(numbers, seed, 23))),
            "expires": _sparse(count, (rows, expires)).cast(TIME),
            "seller": _sparse(count, (rows, seller)),
            "category": _sparse(count, (rows, FIRST_CATEGORY_ID + whole(numbers, CATEGORIES, seed, 27))),
        }

    def _bids(self, count: int, rows: Numbers, numbers: Numbers) -> dict[str, pa.Array]:
        options, seed, known = self.options, self.options.seed, texts(self.options.seed)
        hot_auction = _last_auction(numbers) // HOT_EVERY * HOT_EVERY
        hot = whole(numbers, options.hot_auction_ratio, seed, 30) > 0
        auction = np.where(hot, hot_auction, self._any_auction(numbers, 31)) + FIRST_AUCTION_ID
        hot_bidder = _last_person(numbers) // HOT_EVERY * HOT_EVERY + 1
        hot = whole(numbers, options.hot_bidder_ratio, seed, 32) > 0
        bidder = np.where(hot, hot_bidder, self._any_person(numbers, 33)) + FIRST_PERSON_ID
        hot = whole(numbers, 2, seed, 35) > 0
        cold_channel = len(HOT_CHANNELS) + whole(numbers, CHANNELS, seed, 37)
        channel = _sparse(count, (rows, np.where(hot, whole(numbers, len(HOT_CHANNELS), seed, 36), cold_channel)))
        return {
            "auction": _sparse(count, (rows, auction)),
            "bidder": _sparse(count, (rows, bidder)),
            "price": _sparse(count, (rows, _price(numbers, seed, 34))),
            "channel": known.channels.take(channel),
            "url": known.urls.take(channel),
        }

    def _any_person(self, numbers: Numbers, salt: int) -> Numbers:
        """Return one of the active people, or one who comes soon, counted from zero."""
        people = _last_person(numbers) + 1
        active = np.minimum(people, self.options.active_people)
        return people - active + whole(numbers, active + PERSON_ID_LEAD, self.options.seed, salt)

    def _any_auction(self, numbers: Numbers, salt: int) -> Numbers:
        """Return one of the auctions in flight, or one that opens soon, counted from zero."""
        last = _last_auction(numbers)
        earliest = np.maximum(last - self.options.in_flight_auctions, 0)
        return earliest + whole(numbers, last - earliest + 1 + AUCTION_ID_LEAD, self.options.seed, salt)


def complete(kind: str, *columns: str) -> pc.Expression:
    """Say which events are of a kind and have a value in these columns: what comes from elsewhere may lack some."""
    expression = hw.col("kind") == kind
    for column in columns:
        expression &= hw.col(column).is_valid()
    return expression


def _last_person(numbers: Numbers) -> Numbers:
    """Return the latest person as of an event, counted from zero."""
    return numbers // EPOCH_EVENTS


def _last_auction(numbers: Numbers) -> Numbers:
    """Return the latest auction as of an event that is no person, counted from zero."""
    epoch, offset = np.divmod(numbers, EPOCH_EVENTS)
    return epoch * EPOCH_AUCTIONS + np.minimum(offset, EPOCH_AUCTIONS) - 1


def _auction_id(numbers: Numbers) -> Numbers:
    return _last_auction(numbers) + FIRST_AUCTION_ID


def _price(numbers: Numbers, seed: int, salt: int) -> Numbers:
    """Return prices from 1 to a million, in cents, as likely in each power of ten."""
    return np.floor(10.0 ** (6.0 * uniform(numbers, seed, salt)) * 100.0 + 0.5).astype(np.int64)


def _sparse(count: int, *parts: tuple[Numbers, Numbers]) -> pa.Array:
    """Return `count` numbers, null but for the rows of the parts."""
    values, null = np.zeros(count, np.int64), np.ones(count, bool)
    for rows, numbers in parts:
        values[rows], null[rows] = numbers, False
    return pa.array(values, mask=null)
