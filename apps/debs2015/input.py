"""What both queries have in common: where their trips come from."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import headwater as hw

from .made_trips import TripLines
from .trips import TRIPS


@dataclass(frozen=True, kw_only=True)
class OfTrips:
    """The half of an application that is about its input."""

    wire: ClassVar[hw.Wire] = "text"

    seed: int = 1

    def made(self) -> TripLines:
        """Return a generator of trips."""
        return TripLines(self.seed)

    def real(self, data: Path, *, rate: float | None, loop: bool) -> hw.Stream:
        """Read the trips of the first hour of 2013."""
        if not (data / TRIPS).is_file():
            raise hw.ConfigError(f"there is no file {data / TRIPS}; DEBS 2015 reads its trips there (docs/data.md)")
        return hw.read.text(data / TRIPS, rate=rate, loop=loop, bad_lines="skip", name="input")
