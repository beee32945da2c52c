"""Errors of callers and of the world, as types that carry their facts.

Every message is one sentence that a tired person can act on: what happened, where, what to do.
"""

from collections.abc import Iterable

from headwater.model.quoting import abridged, listed, quoted
from headwater.model.suggestions import did_you_mean


class HeadwaterError(Exception):
    """The root of everything Headwater raises on purpose; its text is fit to be shown to a user, whatever it quotes."""

    def __init__(self, *told: object) -> None:
        """Shorten texts that are too long to be read, in the middle."""
        super().__init__(*(abridged(one) if isinstance(one, str) else one for one in told))


def at_line(line: str) -> str:
    """Return where something is written, as the end of a message; nothing if that is not known."""
    return f"\n  at  {line}" if line else ""


class FlowError(HeadwaterError):
    """The flow cannot run as written; raised before anything runs."""


class UnknownColumn(FlowError):
    """An operator names a column that its input does not have."""

    def __init__(self, operator: str, column: str, known: Iterable[str], line: str = "") -> None:
        """Remember which operator asked for which column."""
        self.operator, self.column, self.known = operator, column, sorted(known)
        super().__init__(
            f"operator {quoted(operator)} needs column {quoted(column)}, "
            f"but its input has only: {listed(self.known) or 'nothing'}{did_you_mean(column, self.known)}"
            f"{at_line(line)}"
        )


class UnknownName(FlowError, AttributeError):
    """A name that a part of a flow does not have; an AttributeError too, for what asks whether there is one."""

    def __init__(self, what: str, name: str, instead: str | None, known: Iterable[str]) -> None:
        """Say what to write instead, if that is known, or what is spelled alike."""
        advice = did_you_mean(name, known) if instead is None else f"; write {instead}"
        super().__init__(f"{what} has no {quoted(name)}{advice}")


class UserCodeError(HeadwaterError):
    """A user's function raised: names flow, operator, input row and the user's line."""

    def __init__(self, flow: str, operator: str, error: str, line: str, row: str) -> None:
        """Keep the facts apart, so that a dead letter can carry them as columns."""
        self.flow, self.operator, self.error, self.line, self.row = flow, operator, error, line, row
        where = "".join(f"\n  {word} {text}" for word, text in (("at ", line), ("row", row)) if text)
        super().__init__(f"flow {flow!r}, operator {operator!r}: {error}{where}")


class ConnectorError(HeadwaterError):
    """A source or sink cannot go on: which one, why, and what to do."""


class SchemaMismatch(ConnectorError):
    """The data does not have the columns or types that the flow declares."""


class NotNow(HeadwaterError):
    """What an operator needs is away for now, which is no row's fault: the rows wait until it is back."""


class StoreError(HeadwaterError):
    """The node's store cannot be opened or written."""


class StoreFull(StoreError):
    """No room is left for a commit: the store's budget or the disk is used up. Nothing was changed."""


class StoreTaken(StoreError):
    """Another node has taken the store over under a higher term, so this one may commit nothing (fencing)."""

    def __init__(self) -> None:
        super().__init__(
            "another node has taken over this node's store, so nothing runs here any more: two nodes were started on "
            "the same data, on a file system without locks; stop one of them"
        )


class Conflict(StoreError):
    """Another commit has changed what a transaction read. Nothing was changed."""


class ConfigError(HeadwaterError):
    """A setting has a value it cannot have."""


class EngineError(HeadwaterError):
    """The engine, Spark or Java could not be started, or was lost for good."""
