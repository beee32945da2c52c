"""Decodes a chunk of lines into a batch, whatever is in it.

The whole chunk is parsed at once. Only if that fails are the columns widened, and only if that fails too is the chunk
bisected, until invalid lines stand alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headwater.connectors.columns import KnownColumns, merged, one_batch
from headwater.connectors.files.formats import NOT_ROWS, Format
from headwater.connectors.files.lines import Cut, Offsets


@dataclass(frozen=True, slots=True)
class BadLine:
    """An invalid line: its offset in the chunk, and the reason."""

    start: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a chunk, the offset of each one's end, and the rows that bad lines come before."""

    batch: pa.RecordBatch
    ends: Offsets
    consumed: int
    bad_before: tuple[int, ...] = ()


class Decoder:
    """Decodes lines into rows, in the columns known so far."""

    def __init__(self, form: Format, known: KnownColumns, *, skip_bad: bool) -> None:
        self.form, self.known, self.skip_bad = form, known, skip_bad

    def decode(self, data: bytes, cut: Cut) -> Decoded | BadLine:
        """Return the rows up to the end or, unless bad lines are skipped, up to the first bad line."""
        if not cut.unclosed:
            whole = self._parse(data[: cut.consumed], len(cut.ends))
            if whole is not None:
                return Decoded(self._batch(whole), cut.ends, cut.consumed)
        good, bad = self._sorted_out(data, cut)
        if bad and not self.skip_bad:
            if not good:
                line = cut.line(data, bad[0])
                return BadLine(int(cut.starts[bad[0]]), self._reason(line, cut, bad[0]))
            return self._decoded(data, cut, good, int(cut.starts[bad[0]]), ())
        return self._decoded(data, cut, good, cut.consumed, _ranks(good, bad))

    def _reason(self, line: bytes, cut: Cut, index: int) -> str:
        if cut.unclosed and index == len(cut.ends) - 1:
            return "opens a quote that is never closed"
        return self.form.reason(line, self.known.schema)

    def _decoded(self, data: bytes, cut: Cut, good: list[int], consumed: int, before: tuple[int, ...]) -> Decoded:
        if not good:
            return Decoded(self.no_rows(), cut.ends[:0], consumed, before)
        rows = self._parse(b"".join(_ended(cut.line(data, line)) for line in good), len(good))
        assert rows is not None, "lines that parse one by one parse together, in the columns they have widened"
        return Decoded(self._batch(rows), cut.ends[good], consumed, before)

    def _sorted_out(self, data: bytes, cut: Cut) -> tuple[list[int], list[int]]:
        good: list[int] = []
        bad: list[int] = []
        for start, stop, is_good in self._runs(data, cut):
            if is_good:
                good.extend(range(start, stop))
            elif cut.line(data, start).strip():
                bad.append(start)
                if not self.skip_bad:
                    break
        return good, bad

    def _runs(self, data: bytes, cut: Cut) -> Iterator[tuple[int, int, bool]]:
        pending = [(0, len(cut.ends))]
        while pending:
            start, stop = pending.pop()
            unclosed = cut.unclosed and stop == len(cut.ends)
            lines = data[cut.starts[start] : cut.ends[stop - 1]]
            is_good = not unclosed and self._parse(lines, stop - start) is not None
            if is_good or stop - start == 1:
                yield start, stop, is_good
            else:
                middle = (start + stop) // 2
                pending += [(middle, stop), (start, middle)]

    def _parse(self, lines: bytes, rows: int) -> pa.Table | None:
        """Return the rows if every line is valid, and learn their columns."""
        table = self._as_known(lines)
        if table is None and not self.known.declared and self.known.schema is not None:
            table = self._widened(lines, self.known.schema)
        if table is None or table.num_rows != rows:
            return None
        self.known.learn(table.schema)
        return table

    def _as_known(self, lines: bytes) -> pa.Table | None:
        try:
            return self.form.parse(lines, self.known.schema, self.known.declared)
        except NOT_ROWS:
            return None

    def _widened(self, lines: bytes, known: pa.Schema) -> pa.Table | None:
        try:
            seen = self.form.parse(lines, None, False).schema
            wider = merged(known, seen, text_takes_all=self.form.text_takes_all)
            return None if wider is None else self.form.parse(lines, wider, False)
        except NOT_ROWS:
            return None

    def no_rows(self) -> pa.RecordBatch:
        """Return an empty batch with the columns known so far."""
        empty = self.known.schema if self.known.schema is not None else pa.schema([])
        return pa.RecordBatch.from_pylist([], schema=empty)

    def _batch(self, table: pa.Table) -> pa.RecordBatch:
        batch = one_batch(table)
        if self.known.declared:
            return pa.RecordBatch.from_arrays(batch.columns, schema=self.known.schema)
        return batch


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


def _ranks(good: list[int], bad: list[int]) -> tuple[int, ...]:
    """Return, for each bad line, the number of good lines before it."""
    ranks, at = [], 0
    for line in bad:
        while at < len(good) and good[at] < line:
            at += 1
        ranks.append(at)
    return tuple(ranks)
