"""Nexmark's query 7: highest bid."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import headwater as hw
from headwater import functions as F

from .events import BID, SCHEMA, WATERMARK_DELAY, EventOptions, complete

HIGHEST: Final = pa.schema([SCHEMA.field(name) for name in ("auction", "bidder", "price", "dateTime", "extra")])


@dataclass(frozen=True, kw_only=True)
class HighestBid(EventOptions, hw.App):
    """Nexmark Q7: the bids with the highest price of every ten seconds."""

    name: ClassVar[str] = "nexmark.q7"

    size: str = "10 seconds"

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Let each batch send on its highest bids only, then find the highest of a window among those."""
        windows = F.window("dateTime", self.size)
        bids = (
            rows.select("kind", *HIGHEST.names)
            .with_watermark("dateTime", WATERMARK_DELAY)
            .filter(complete(BID, "auction", "bidder", "price", "dateTime"), name="bids")
        )
        return (
            bids.filter(HighestOfBatch(windows.size_us), name="highest-of-batch")
            .window(windows)
            .apply(highest, schema=HIGHEST, name="highest")
            .select(*HIGHEST.names)
        )


@dataclass(frozen=True)
class HighestOfBatch:
    """Which bids of a batch no other of the same batch and window exceeds: only these can be the highest of all.

    It has to stand behind the watermark. Where a row comes too late the batch is cut there, so that within a batch all
    bids of a window are in time, or none is, and a bid that is dropped later has not outbid one that is not.
    """

    size_us: int

    def __call__(self, bids: pa.RecordBatch) -> pa.Array:
        """Answer for every bid."""
        windows = bids["dateTime"].cast(pa.int64()).to_numpy() // self.size_us
        prices = bids["price"].to_numpy()
        found, window = np.unique(windows, return_inverse=True)
        highest = np.full(len(found), np.iinfo(np.int64).min)
        np.maximum.at(highest, window, prices)
        return pa.array(prices == highest[window])


def highest(bids: pa.RecordBatch) -> pa.RecordBatch:
    """Keep the bids of one window with the highest price: several, if they are equal."""
    return bids.filter(pc.equal(bids["price"], pc.max(bids["price"]))).select(HIGHEST.names)
