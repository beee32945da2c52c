"""Workers that take turns: each remembers what it did before, and not what the other did."""

from dataclasses import dataclass, field

from headwater.operators.base import TimedLogic, TimedOperator


@dataclass(frozen=True, kw_only=True)
class TakingTurns(TimedOperator):
    """An operator that two workers have open, and run in turn: what a worker remembers must never be wrong."""

    kind = "taking_turns"
    operator: TimedOperator
    workers: list[TimedLogic] = field(default_factory=list)

    def open(self) -> TimedLogic:
        """Return the worker whose turn it is."""
        if len(self.workers) < 2:
            self.workers.append(self.operator.open())
        else:
            self.workers.append(self.workers.pop(0))
        return self.workers[-1]

    @property
    def ports(self) -> tuple[str, ...]:
        """Those of the operator."""
        return self.operator.ports
