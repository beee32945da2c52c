"""Splits bytes into lines.

A line ends after its newline. In CSV a newline inside quotes does not count: if quotes are regular, their parity tells
inside from outside for a whole chunk at once; if there is a stray quote in the middle of a field, a pattern matches
record by record, as the CSV parser itself would.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]

_NEWLINE: Final = 10
_RETURN: Final = 13
_QUOTE: Final = 34


@dataclass(frozen=True, slots=True)
class Cut:
    """The offsets of the lines of a chunk, without blank ones."""

    starts: Offsets
    ends: Offsets
    consumed: int  # bytes in these lines and blank ones
    unclosed: bool = False  # the last line opens a quote that is never closed

    def line(self, data: bytes, index: int) -> bytes:
        """Return one line with its newline."""
        return data[self.starts[index] : self.ends[index]]


def cut_lines(data: bytes, *, at_end: bool, keep_blank: bool = False) -> Cut:
    """Cut at every newline; at the end of a file the rest is a line as well."""
    ends = np.flatnonzero(_codes(data) == _NEWLINE) + 1
    if at_end and len(data) > (ends[-1] if len(ends) else 0):
        ends = np.append(ends, len(data))
    return _cut(data, ends, keep_blank=keep_blank)


def cut_records(data: bytes, delimiter: str, *, at_end: bool) -> Cut:
    """Split at every newline outside quotes."""
    if b'"' not in data:
        return cut_lines(data, at_end=at_end)
    codes = _codes(data)
    quotes = np.flatnonzero(codes == _QUOTE)
    if _are_regular(codes, quotes, delimiter):
        newlines = np.flatnonzero(codes == _NEWLINE)
        ends = newlines[np.searchsorted(quotes, newlines) % 2 == 0] + 1
        unclosed = len(quotes) % 2 == 1
    else:
        ends = _walk(data, delimiter)
        unclosed = _is_unclosed(data[ends[-1] if len(ends) else 0 :], delimiter)
    begin = int(ends[-1]) if len(ends) else 0
    if not at_end or begin == len(data):
        return _cut(data, ends)
    if not unclosed:
        return _cut(data, np.append(ends, len(data)))
    return _cut(data, np.append(ends, data.find(b"\n", begin) + 1 or len(data)), unclosed=True)


def _codes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _cut(data: bytes, ends: Offsets, *, keep_blank: bool = False, unclosed: bool = False) -> Cut:
    consumed = int(ends[-1]) if len(ends) else 0
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if len(ends) else ends
    if len(ends) and not keep_blank:
        codes = _codes(data)
        lengths, first = ends - starts, codes[starts]
        only_newline = (lengths == 1) & ((first == _NEWLINE) | (first == _RETURN))
        blank = only_newline | ((lengths == 2) & (first == _RETURN) & (codes[ends - 1] == _NEWLINE))
        if blank.any():
            starts, ends = starts[~blank], ends[~blank]
    return Cut(starts, ends, consumed, unclosed)


def _are_regular(codes: npt.NDArray[np.uint8], quotes: Offsets, delimiter: str) -> bool:
    """Whether every opening quote begins a field, or continues one after a doubled quote."""
    opening = quotes[::2]
    before = codes[opening[opening > 0] - 1]
    return bool(np.isin(before, (_NEWLINE, _QUOTE, ord(delimiter))).all())


@cache
def _record(delimiter: str) -> re.Pattern[bytes]:
    edge = re.escape(delimiter.encode())
    field = rb'(?:"(?:[^"]|"")*+"[^' + edge + rb"\n]*+|(?!\")[^" + edge + rb"\n]*+)"
    return re.compile(field + rb"(?:" + edge + field + rb")*+")


def _walk(data: bytes, delimiter: str) -> Offsets:
    pattern, ends, at = _record(delimiter), [], 0
    while (match := pattern.match(data, at)) is not None and data[match.end() : match.end() + 1] == b"\n":
        at = match.end() + 1
        ends.append(at)
    return np.array(ends, np.int64)


def _is_unclosed(rest: bytes, delimiter: str) -> bool:
    match = _record(delimiter).match(rest)
    return match is None or match.end() < len(rest)
