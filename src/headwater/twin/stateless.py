"""Operators without state: `mapInArrow` with the operators' own logic, several in a row as one.

An operator with several outputs, or with dead letters, runs once for each of them that is read: users' functions are
assumed to be deterministic.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

import pyarrow as pa

from headwater.model.errors import UserCodeError
from headwater.operators.chain import (
    ChainResult,
    NamedOperator,
    OpenChain,
    Segment,
    Turnover,
    _sentence,
    unite,
)
from headwater.operators.users_lines import NO_LINE, line_raised
from headwater.twin.columns import aligned, conformed, spark_form
from headwater.twin.trouble import TroubleBox

_OPENED_MAX: Final = 100  # open chains in the cache; clearing it costs one opening each

_opened: dict[str, OpenChain] = {}  # not locked: a worker of Spark runs one task after another


@dataclass(frozen=True)
class Chained:
    """Operators that run as one, and which of their outputs is wanted. Pickled for the executors."""

    flow: str
    operators: tuple[NamedOperator, ...]
    port: int | None  # of the last of them; None: its dead letters
    given: pa.Schema
    made: pa.Schema
    trouble: TroubleBox
    number: str = field(default_factory=lambda: uuid4().hex)  # the key of a worker's cache

    def run(self, batch: pa.RecordBatch, kept: Mapping[bytes, bytes]) -> ChainResult:
        """Run rows through the operators with the given state."""
        store = EntriesInMemory(kept)
        return self._open().run([Segment([(0, batch)])], Turnover(lambda index: store))

    def outlet(self, result: ChainResult) -> pa.RecordBatch | None:
        """Return the wanted rows, in the schema of the first rows, which Spark cannot widen later."""
        if self.port is None:
            pieces = result.dead.get(len(self.operators) - 1, [])
        else:
            pieces = [rows for emission in result.emissions if (rows := emission.outputs[self.port]) is not None]
        return self.fitting(unite(pieces)) if pieces else None

    def fitting(self, made: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows in the schema that the first rows had."""
        try:
            return aligned(made, self.made)
        except (ValueError, pa.ArrowException) as failure:
            told = f"its result does not fit what it made of the first rows ({failure}); declare schema="
            raise self._trouble(told, NO_LINE) from failure

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """Report whatever is raised inside the block as an error of the last operator."""
        with self.trouble.watching():
            try:
                yield
            except UserCodeError:
                raise
            except Exception as failure:  # a user's code may raise anything
                raise self._trouble(_sentence(failure), line_raised(failure)) from failure

    def _trouble(self, error: str, line: str) -> UserCodeError:
        last = self.operators[-1]
        return UserCodeError(self.flow, last.name, error, line or last.line, "")

    def _open(self) -> OpenChain:
        chain = _opened.get(self.number)
        if chain is None:
            if len(_opened) >= _OPENED_MAX:
                _opened.clear()
            chain = _opened[self.number] = OpenChain(self.flow, self.operators)
        return chain


class EntriesInMemory:
    """Entries in memory in the place of an operator's committed state."""

    def __init__(self, entries: Mapping[bytes, bytes]) -> None:
        self._entries = entries

    def read_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of these entries."""
        return [self._entries.get(key) for key in keys]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the entries from `start` up to but without `stop`, in order."""
        return iter(self.gather(start, stop))

    def gather(self, start: bytes, stop: bytes) -> list[tuple[bytes, bytes]]:
        """Return these entries as a list."""
        return [(key, self._entries[key]) for key in sorted(self._entries) if start <= key < stop]


@dataclass(frozen=True)
class ChainStep:
    """Runs operators without state on the rows of a partition."""

    chained: Chained

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the result for the rows."""
        chained = self.chained
        form = spark_form(chained.made, chained.operators[-1].name)
        with chained.trouble.watching():
            for batch in batches:
                if batch.num_rows:
                    made = chained.outlet(chained.run(conformed(batch, chained.given), {}))
                    if made is not None:
                        yield conformed(made, form)
