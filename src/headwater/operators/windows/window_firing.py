"""When windows fire besides at their end: early, by rows or by the clock, and again for rows that come late.

The clock's alarm is set to round times, as a wall clock's quarter hours are, so that keys which part and meet again
keep firing together.
"""

from dataclasses import dataclass
from typing import Final

from headwater.operators.base import Moment
from headwater.operators.state import OperatorState

_ALARM: Final = "alarm"


@dataclass(frozen=True)
class Firing:
    """When windows fire besides at their end."""

    lateness_us: int = 0
    early_us: int | None = None
    early_rows: int | None = None

    @property
    def says_why(self) -> bool:
        """Whether a window can fire more than once, so that rows have to say why they come out."""
        return bool(self.lateness_us or self.is_early)

    @property
    def is_early(self) -> bool:
        """Whether windows fire before their end."""
        return self.early_us is not None or self.early_rows is not None

    @property
    def counts_rows(self) -> bool:
        """Whether it has to be remembered how many rows a window got since it fired."""
        return self.early_us is not None or (self.early_rows is not None and self.early_rows > 1)

    def enough(self, fresh: int) -> bool:
        """Whether so many rows since the last time make a window fire."""
        return self.early_rows is not None and fresh >= self.early_rows

    def set_alarm(self, moment: Moment) -> None:
        """Let windows with new rows fire at the next round time, if none is set."""
        if self.early_us is not None and moment.state.own(_ALARM) is None:
            rings_us = moment.now_us - moment.now_us % self.early_us + self.early_us
            moment.state.keep_own(_ALARM, rings_us.to_bytes(8, "big"))

    def alarm_us(self, state: OperatorState) -> int | None:
        """Return when windows with new rows are to fire."""
        kept = state.own(_ALARM) if self.early_us is not None else None
        return None if kept is None else int.from_bytes(kept, "big")

    def rings(self, moment: Moment) -> bool:
        """Whether it is time to fire what has new rows; the alarm is off then."""
        alarm_us = self.alarm_us(moment.state)
        if alarm_us is None or alarm_us > moment.now_us:
            return False
        moment.state.keep_own(_ALARM, None)
        return True
