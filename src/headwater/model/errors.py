"""Errors of callers and of the world, as types that carry their facts.

Every message is one sentence that a tired person can act on: what happened, where, what to do.
"""

from collections.abc import Iterable

from headwater.model.quoting import abridged, listed, quoted


class HeadwaterError(Exception):
    """The root of everything Headwater raises on purpose; its text is fit to be shown to a user, whatever it quotes."""

    def __init__(self, *told: object) -> None:
        """Shorten texts that are too long to be read, in the middle."""
        super().__init__(*(abridged(one) if isinstance(one, str) else one for one in told))


class FlowError(HeadwaterError):
    """The flow cannot run as written; raised before anything runs."""


class UnknownColumn(FlowError):
    """An operator names a column that its input does not have."""

    def __init__(self, operator: str, column: str, known: Iterable[str]) -> None:
        """Take the operator, the column it needs, and those that there are."""
        self.operator, self.column, self.known = operator, column, sorted(known)
        super().__init__(
            f"operator {quoted(operator)} needs column {quoted(column)}, "
            f"but its input has only: {listed(self.known) or 'nothing'}"
        )


class UserCodeError(HeadwaterError):
    """A user's function raised: names flow, operator, input row and the user's line."""

    def __init__(self, flow: str, operator: str, error: str, line: str, row: str) -> None:
        """Keep the facts apart, so that a dead letter can carry them as columns."""
        self.flow, self.operator, self.error, self.line, self.row = flow, operator, error, line, row
        super().__init__(f"flow {flow!r}, operator {operator!r}: {error}\n  at  {line}\n  row {row}")


class ConnectorError(HeadwaterError):
    """A source or sink cannot go on: which one, why, and what to do."""


class SchemaMismatch(ConnectorError):
    """The data does not have the columns or types that the flow declares."""


class StoreError(HeadwaterError):
    """The node's store cannot be opened or written."""


class StoreFull(StoreError):
    """No room is left for a commit: the store's budget or the disk is used up. Nothing was changed."""


class Conflict(StoreError):
    """Another commit has changed what a transaction read. Nothing was changed."""


class ConfigError(HeadwaterError):
    """A setting has a value it cannot have."""


class EngineError(HeadwaterError):
    """The engine, Spark or Java could not be started, or was lost for good."""
