"""Nexmark's query 6: average selling price by seller."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import ListState, StatefulProcessor, StatefulProcessorHandle

import headwater as hw

from .events import AUCTION, BID, TIME, WATERMARK_DELAY, EventOptions, complete

LAST: Final = 10  # auctions of a seller
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)

IS_AUCTION: Final = complete(AUCTION, "id", "dateTime", "expires", "seller")
IS_BID: Final = complete(BID, "auction", "dateTime", "price")
OFFER: Final = pa.schema(
    [
        ("auction", pa.int64()),
        ("at_us", pa.int64()),
        ("expires_us", pa.int64()),  # of an auction,
        ("seller", pa.int64()),
        ("price", pa.int64()),  # of a bid
    ]
)
SALE: Final = pa.schema([("seller", pa.int64()), ("auction", pa.int64()), ("closed", TIME), ("price", pa.int64())])
AVERAGE: Final = pa.schema([*SALE, ("average", pa.float64())])


@dataclass(frozen=True, kw_only=True)
class SellingPrice(EventOptions, hw.App):
    """Nexmark Q6: the average price of the last ten auctions that a seller has closed."""

    name: ClassVar[str] = "nexmark.q6"

    parallelism: int = 1  # instances that share the auctions, and as many that share the sellers

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Find the winning bid of every auction when it closes, then average those of a seller."""
        offers = (
            rows.select("kind", "id", "auction", "dateTime", "expires", "seller", "price")
            .with_watermark("dateTime", WATERMARK_DELAY)
            .filter(IS_AUCTION | IS_BID, name="auctions-and-bids")
            .map(as_offers, schema=OFFER, name="offers")
        )
        sales = offers.key_by("auction").process(
            Auction(), SALE, time_mode="EventTime", name="winning-bid", parallelism=self.parallelism
        )
        return sales.key_by("seller").process(
            Seller(), AVERAGE, time_mode="EventTime", name="last-ten", parallelism=self.parallelism
        )


def as_offers(events: pa.RecordBatch) -> pa.RecordBatch:
    """Give auctions and bids the same key, and times as numbers; a price makes a bid."""
    is_bid = pc.equal(events["kind"], BID)
    return pa.record_batch(
        [
            pc.if_else(is_bid, events["auction"], events["id"]),
            events["dateTime"].cast(pa.int64()),
            events["expires"].cast(pa.int64()),
            events["seller"],
            pc.if_else(is_bid, events["price"], pa.scalar(None, pa.int64())),
        ],
        schema=OFFER,
    )


class Auction(StatefulProcessor):
    """Keeps the best bid of an auction until it closes.

    A bid counts if it was made while the auction was open, both ends included. Bids that come before their auction wait
    for it, until event time says that it cannot come any more.
    """

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep the auction, the best bid, and the bids that wait for an auction."""
        self._handle = handle
        self._auction = handle.getValueState("auction", "opened long, expires long, seller long")
        self._best = handle.getValueState("best", "price long")
        self._waiting = handle.getListState("waiting", "at long, price long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Take the auction, or bids for it; what is behind the watermark comes too late."""
        now_us = timerValues.getCurrentWatermarkInMs() * 1_000
        offers = [row for row in rows if row.at_us >= now_us]
        for offer in offers:
            if offer.price is None:
                self._open(offer)
        self._bid([(offer.at_us, offer.price) for offer in offers if offer.price is not None])
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Close the auction if its time has come; without one, forget the bids that can have none any more."""
        now_ms = expiredTimerInfo.getExpiryTimeInMs()
        auction, best = self._auction.get(), self._best.get()
        if auction is None:
            waiting = [(at_us, price) for at_us, price in self._waiting.get() if _after_ms(at_us) > now_ms]
            self._waiting.clear()
            self._wait(waiting)
            return
        _, expires_us, seller = auction
        if _after_ms(expires_us) <= now_ms:
            self._auction.clear()
            self._best.clear()
            if best is not None:
                yield Row(seller=seller, auction=key[0], closed=EPOCH + expires_us * MICROSECOND, price=best[0])

    def _open(self, offer: Row) -> None:
        self._auction.update((offer.at_us, offer.expires_us, offer.seller))
        self._handle.registerTimer(_after_ms(offer.expires_us))
        bids = [(at_us, price) for at_us, price in self._waiting.get()]
        self._waiting.clear()
        self._bid(bids)

    def _wait(self, bids: list[tuple[int, int]]) -> None:
        """Keep bids for an auction that has not come; one timer at a time asks which of them wait in vain.

        It is set to the last of them, so that none is written again more than once or twice.
        """
        if bids and not self._waiting.exists():
            self._handle.registerTimer(_after_ms(max(at_us for at_us, _ in bids)))
        if bids:
            self._waiting.appendList(bids)

    def _bid(self, bids: list[tuple[int, int]]) -> None:
        if not bids:
            return
        auction, best = self._auction.get(), self._best.get()
        if auction is None:
            self._wait(bids)
            return
        opened_us, expires_us, _ = auction
        valid = [price for at_us, price in bids if opened_us <= at_us <= expires_us]
        if valid:
            self._best.update((max([*valid, *(best or ())]),))


class Seller(StatefulProcessor):
    """Averages the prices of a seller's last auctions, in the order in which they closed."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Keep the last prices, and the sales that other auctions may still precede."""
        self._handle = handle
        self._prices = handle.getListState("prices", "price long")
        self._sales = handle.getListState("sales", "closed long, auction long, price long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Keep sales until event time has come to them, and with it all that precede them."""
        for row in rows:
            closed_us = (row.closed - EPOCH) // MICROSECOND
            self._sales.appendValue((closed_us, row.auction, row.price))
            self._handle.registerTimer(_after_ms(closed_us))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Count the sales whose time has come, and tell the average with each."""
        sales = sorted(tuple(sale) for sale in self._sales.get())
        now_ms = expiredTimerInfo.getExpiryTimeInMs()
        prices = [price for (price,) in self._prices.get()]
        for closed_us, auction, price in sales:
            if _after_ms(closed_us) <= now_ms:
                prices = [*prices, price][-LAST:]
                average = sum(prices) / len(prices)
                closed = EPOCH + closed_us * MICROSECOND
                yield Row(seller=key[0], auction=auction, closed=closed, price=price, average=average)
        _keep(self._sales, [sale for sale in sales if _after_ms(sale[0]) > now_ms])
        _keep(self._prices, [(price,) for price in prices])


def _keep(state: ListState, values: list[tuple[int, ...]]) -> None:
    """Replace a list; PySpark does not let an empty one be put."""
    if values:
        state.put(values)
    else:
        state.clear()


def _after_ms(instant_us: int) -> int:
    """Return the first millisecond behind an instant: once event time is there, nothing of that instant can come."""
    return instant_us // 1_000 + 1
