"""A Spark that is lost and started again: when the next try is due, and what there is to tell meanwhile.

The pauses are an exponential backoff. A Spark that was lost after it had run for a while is started again at once; one
that cannot be started, or is lost as soon as it has started, is waited for ever longer, up to half a minute. It is
tried for as long as the node lives: what keeps a JVM from starting (memory, a full disk, a killer) may pass by itself.
Knows neither Spark nor the clock: instants come in, as seconds that only grow.
"""

from dataclasses import dataclass
from typing import Final

REASON_CHARS_MAX: Final = 300  # of what Spark says of a failure, in a line among others


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a try, by how many have failed in a row before it."""

    first_s: float = 1.0  # after the first failure; twice as long after each further one
    longest_s: float = (
        30.0  # a start takes six seconds of one core: at most a fifth of its time goes into tries in vain
    )
    steady_s: float = 30.0  # what ran for so long was no failure: the first try after it comes at once

    def pause_s(self, failures: int) -> float:
        """Return the pause after so many failures in a row."""
        return 0.0 if failures == 0 else min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30))


class SparkOutage:
    """Whether Spark is there; and if not, since when, why, how often it was tried to start it, and when it is next."""

    def __init__(self, backoff: Backoff | None = None) -> None:
        """Begin with a Spark that is there."""
        self._backoff = backoff or Backoff()
        self._failures = 0  # in a row: tries that failed, and Sparks that did not last
        self._tries = 0  # since it was lost
        self._reason = self._failure = ""
        self._up_since_s = self._lost_s = 0.0
        self._again_s: float | None = None  # None: it is being tried
        self.is_on = False

    def lost(self, reason: str, now_s: float) -> None:
        """Take note that Spark was lost."""
        assert not self.is_on
        self.is_on, self._reason, self._lost_s = True, _line(reason), now_s
        self._failures = 0 if now_s - self._up_since_s >= self._backoff.steady_s else self._failures + 1
        self._tries, self._failure = 0, ""
        self._again_s = now_s + self._backoff.pause_s(self._failures)

    def trying(self) -> None:
        """Take note that it is being started."""
        self._tries += 1
        self._again_s = None

    def failed(self, why: str, now_s: float) -> None:
        """Take note that it could not be started."""
        assert self.is_on
        self._failures += 1
        self._failure = _line(why)
        self._again_s = now_s + self._backoff.pause_s(self._failures)

    def back(self, now_s: float) -> None:
        """Take note that it is there, for the first time or again."""
        self.is_on, self._up_since_s = False, now_s

    def wait_s(self, now_s: float) -> float:
        """Return how long to wait before the next try."""
        return 0.0 if self._again_s is None else max(0.0, self._again_s - now_s)

    def history(self, now_s: float) -> str:
        """Return what there is to say once it is back."""
        took = f"{now_s - self._lost_s:.0f} s (tried {_times(self._tries)})"
        return f"Spark was lost ({self._reason}) and is back after {took}"

    def told(self, now_s: float) -> str:
        """Return how it is, in a sentence that stays the same up to its last bracket, unless something happens."""
        if not self.is_on:
            return ""
        failed = f", and could not be started again: {self._failure}" if self._failure else ", and is started again"
        wait = "now" if self._again_s is None else f"again in {self.wait_s(now_s):.0f} s"
        tried = f"tried {_times(self._tries)}, {wait}" if self._tries else f"tried {wait.removeprefix('again ')}"
        return f"Spark was lost ({self._reason}){failed}; rows and state wait ({tried})"


def _line(text: str) -> str:
    """Return what was said of a failure as one line that is not too long."""
    one = " ".join(text.split())
    return one if len(one) <= REASON_CHARS_MAX else f"{one[: REASON_CHARS_MAX - 4]} ..."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
