"""Finding the highest rate that is held, with few short runs.

Rates stand on a ladder whose rungs differ by a few per cent. From where it begins the search strides up or down until
one rung was held and one was not, and then halves what lies between. A machine has hiccups: a rung that was missed by
little is tried once more.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Search:
    """One search: asks for a rate, is told whether it was held, asks for the next."""

    start: float
    step: float = 1.06  # between two rungs
    stride: int = 8  # rungs, while only one side of the border is known
    probes_max: int = 16  # a search that has not ended by then tells what it has
    held: int | None = None  # the highest rung that was held
    missed: int | None = None  # the lowest that was not
    probes: int = 0
    _near_misses: set[int] = field(default_factory=set)

    @property
    def rate(self) -> float | None:
        """The rate to try next; None at the end."""
        rung = self._rung()
        return None if rung is None or self.probes >= self.probes_max else self._rate_of(rung)

    @property
    def rate_held(self) -> float:
        """The highest rate that was held; 0 if none was."""
        return 0.0 if self.held is None else self._rate_of(self.held)

    def note(self, *, held: bool, near: bool = False) -> None:
        """Take note of how the rate that was asked for went; `near` says that it was missed by little."""
        rung = self._rung()
        assert rung is not None, "the search has ended"
        self.probes += 1
        if held:
            self.held = rung
        elif near and rung not in self._near_misses:
            self._near_misses.add(rung)
        else:
            self.missed = rung

    def _rung(self) -> int | None:
        if self.held is None and self.missed is None:
            return 0
        if self.held is None:
            assert self.missed is not None
            return self.missed - self.stride
        if self.missed is None:
            return self.held + self.stride
        middle = (self.held + self.missed) // 2
        return None if middle == self.held else middle

    def _rate_of(self, rung: int) -> float:
        return float(self.start * self.step**rung)
