"""Reads files of lines: from a position, to the end or, when following, for ever.

A position is a file's name, the offset after the last row and the number of its line, and a checksum of the file's
beginning that distinguishes it from another file under the same name. Chunks end at the end of a line, so a last line
that is still being written is not a row until its newline comes; only in a file that is not followed it is one.

A line longer than any row may be is never held in memory as a whole. It stops the source or, if bad lines are skipped,
is skipped a part at a time, up to its newline.
"""

from dataclasses import dataclass
from typing import Final

from headwater.connectors.files.decoding import BadLine, Decoded, Decoder
from headwater.connectors.files.files import AFRESH, FileList, FileNews, OpenFile, reopen
from headwater.connectors.files.lines import Cut
from headwater.connectors.reading import Piece, Waiting
from headwater.dataflow.connectors import Position
from headwater.model.errors import ConnectorError

CHUNK_BYTES: Final = 256 * 1024  # about 5 ms to parse: long enough to be fast, short enough not to hold up others
LINE_BYTES_MAX: Final = (
    64 * 1024 * 1024
)  # five times the largest row: JSON may be long and have little of what is wanted
PASSED_BYTES_MAX: Final = 64 * 1024 * 1024  # of a longer line, skipped per turn: some 20 ms of reading
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(slots=True)
class _Place:
    """Where reading continues."""

    file: OpenFile
    offset: int
    line: int
    turn: int

    def where(self) -> str:
        return f"{self.file.path}:{self.line}"

    def position(self, remembered: dict[str, bytes]) -> Position:
        return {
            "file": self.file.path,
            "offset": self.offset,
            "line": self.line,
            "head": self.file.head(self.offset),
            "turn": self.turn,
            **remembered,
        }


class LineFeed:
    """The rows of one or more files of lines."""

    def __init__(
        self,
        files: FileList,
        decoder: Decoder,
        *,
        follow: bool,
        loop: bool,
        position: Position | None,
        chunk_bytes: int,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        """Continue after the position, or begin at the first line of the first file."""
        self._files, self._decoder = files, decoder
        self._follow, self._loop, self._chunk_bytes, self._line_bytes_max = follow, loop, chunk_bytes, line_bytes_max
        self._place: _Place | None = None
        self._passing: _Place | None = None  # how far a line that is too long has been skipped
        self._names_from = 0  # the offset of the line that tells the number of columns
        self._finishing = False  # the followed file has a successor, so it will not grow any more
        self._begun = False  # the header of this file has been read
        self._rows_this_turn = 0
        self._rows_of_file = 0
        self._news = FileNews()
        if position is not None:
            file = reopen(self._listed(position["file"]), position["offset"], position["head"], follow=follow)
            self._place = _Place(file, position["offset"], position["line"], position["turn"])
            self._rows_this_turn = self._rows_of_file = 1  # a position is behind at least one line
        else:
            self._go_to(files.first(), 0)

    def pull(self, rows_max: int) -> Piece | Waiting | None:
        """Return the rows of the next chunk."""
        while True:
            if self._place is None and not self._go_to(self._files.first(), 0):
                return Waiting() if self._follow else None
            assert self._place is not None
            found = self._next_piece(self._place)
            if found is not None:
                return found
            if not self._next_file(self._place):
                return None

    def told(self) -> str:
        """Say what there is to say of the files."""
        return self._news.told()

    def close(self) -> None:
        """Close the present file."""
        if self._place is not None:
            self._place.file.close()
            self._place = None

    def _next_piece(self, place: _Place) -> Piece | Waiting | None:
        """Return rows of the present file; None after its last one."""
        if self._passing is not None:
            return self._pass_over(place, self._passing)
        if not self._begun and not self._begin(place):
            return self._rest(place)
        size = self._chunk_bytes
        while True:
            data = place.file.read(place.offset, size)
            at_end = len(data) < size
            if self._follow and data:
                place.file.refuse_if_rewritten()
            cut = self._decoder.form.cut(data, at_end and self._is_complete())
            if len(cut.ends):
                return self._piece(place, data, self._decoded(place, data, cut))
            if cut.consumed:  # blank lines only
                place.offset, place.line = place.offset + cut.consumed, place.line + data.count(b"\n", 0, cut.consumed)
            elif at_end:
                return self._rest(place)
            elif size >= self._line_bytes_max and self._decoder.skip_bad:
                return self._too_long(place, data)
            else:
                size = self._larger(size, place)

    def _too_long(self, place: _Place, data: bytes) -> Piece | Waiting | None:
        """Skip a line that begins so, up to its newline or, if a quote is open, to the first newline."""
        cut = self._decoder.form.cut(data, True)
        if cut.unclosed and b"\n" in data:
            return self._piece(place, data, self._decoded(place, data, cut))
        self._passing = _Place(place.file, place.offset + len(data), place.line + data.count(b"\n"), place.turn)
        return self._pass_over(place, self._passing)

    def _pass_over(self, place: _Place, passing: _Place) -> Piece | Waiting | None:
        """Skip to the end of a line that is too long, and count it there. Until then the position stays before it."""
        stop = passing.offset + PASSED_BYTES_MAX
        while passing.offset < stop:
            data = place.file.read(passing.offset, self._chunk_bytes)
            if self._follow and data:
                place.file.refuse_if_rewritten()
            end = data.find(b"\n") + 1
            passing.offset += end or len(data)
            at_end = len(data) < self._chunk_bytes
            if end or (at_end and self._is_complete()):
                passing.line += 1
                return self._left_out(passing)
            if at_end:
                return self._rest(place)
        return Waiting()

    def _left_out(self, behind: _Place) -> Piece:
        """Continue after a line that was skipped."""
        self._place, self._passing = behind, None
        position = behind.position(self._decoder.known.remembered())
        return Piece(self._decoder.no_rows(), lambda rows: position, turn=behind.turn, too_large=1)

    def _decoded(self, place: _Place, data: bytes, cut: Cut) -> Decoded:
        decoded = self._decoder.decode(data, cut)
        if isinstance(decoded, BadLine):
            line = place.line + data.count(b"\n", 0, decoded.start)
            raise ConnectorError(
                f"{place.file.path}:{line}: the line {decoded.reason}; "
                'correct it, or pass bad_lines="skip" to go on without it'
            )
        return decoded

    def _is_complete(self) -> bool:
        return not self._follow or self._finishing

    def _larger(self, size: int, place: _Place) -> int:
        if size >= self._line_bytes_max:
            raise ConnectorError(
                f"{place.where()}: the line is longer than {self._line_bytes_max >> 20} MiB; check that the file is of "
                'lines and that every quote is closed, or pass bad_lines="skip" to go on without lines of that length'
            )
        return min(size * 4, self._line_bytes_max)

    def _piece(self, place: _Place, data: bytes, decoded: Decoded) -> Piece:
        position_after = _Positions(place, data, decoded, self._decoder.known.remembered()).after
        self._place = _Place(
            place.file,
            place.offset + decoded.consumed,
            place.line + data.count(b"\n", 0, decoded.consumed),
            place.turn,
        )
        self._rows_this_turn += decoded.batch.num_rows
        self._rows_of_file += decoded.batch.num_rows
        return Piece(decoded.batch, position_after, turn=place.turn, bad_before=decoded.bad_before)

    def _begin(self, place: _Place) -> bool:
        """Read the byte order mark and the header of a file, even if its rows continue elsewhere."""
        place.file.refuse_if_compressed()
        size = self._chunk_bytes
        while True:
            data = place.file.read(self._names_from, size)
            mark = len(_BYTE_ORDER_MARK) if self._names_from == 0 and data.startswith(_BYTE_ORDER_MARK) else 0
            at_end = len(data) < size
            known = self._decoder.known.schema
            names = known.names if known is not None else []
            length = self._decoder.form.begin(
                data[mark:], names, f"{place.file.path}:1", at_end and self._is_complete()
            )
            if length is not None:
                break
            if at_end:
                return False
            if size < self._line_bytes_max or self._decoder.form.has_header or not self._decoder.skip_bad:
                size = self._larger(size, place)
            elif place.offset == self._names_from:
                return True  # the first line is too long and is skipped; the next one tells the columns
            else:
                self._names_from, size = place.offset, self._chunk_bytes
        if self._names_from == 0 and place.offset < mark + length:
            place.offset, place.line = mark + length, 1 + data.count(b"\n", 0, mark + length)
        self._begun = True
        return True

    def _rest(self, place: _Place) -> Piece | Waiting | None:
        """Decide whether a file that is read to its end is done with."""
        if not self._follow or self._finishing:
            return None
        has_successor = (
            place.file.is_replaced() if self._files.is_single else self._files.after(place.file.path) is not None
        )
        if not has_successor:
            self._news.waits(place.file.path, is_gone=place.file.is_gone(), rows=self._rows_of_file)
            return Waiting()
        self._finishing = True  # it may have grown since it was read: read it once more, to its very end
        return self._next_piece(place)

    def _next_file(self, place: _Place) -> bool:
        """Turn to the file behind this one; False at the end of all."""
        self._news.ended(place.file.path, is_empty=place.file.size() == 0, rows=self._rows_of_file)
        place.file.close()
        self._place = None
        if self._follow and self._files.is_single:
            return self._go_to(place.file.path, place.turn)
        if self._go_to(self._files.after(place.file.path), place.turn):
            return True
        if not self._loop or self._rows_this_turn == 0:
            return False
        self._rows_this_turn = 0
        return self._go_to(self._files.first(), place.turn + 1)

    def _go_to(self, path: str | None, turn: int) -> bool:
        self._finishing = self._begun = False
        self._passing, self._names_from, self._rows_of_file = None, 0, 0
        if path is not None:
            self._place = _Place(OpenFile(path), 0, 1, turn)
        return path is not None

    def _listed(self, path: str) -> str:
        """Refuse a file that is not among those of this source's path."""
        if not self._files.covers(path):
            raise ConnectorError(
                f"{path}, which was being read when the app stopped, is no longer part of {self._files.path}; "
                f"put it back, {AFRESH}"
            )
        return path


class _Positions:
    """The positions inside one chunk; they must be requested in order."""

    def __init__(self, place: _Place, data: bytes, decoded: Decoded, remembered: dict[str, bytes]) -> None:
        self._file, self._offset, self._turn = place.file, place.offset, place.turn
        self._data, self._decoded, self._remembered = data, decoded, remembered
        self._counted, self._line = 0, place.line

    def after(self, rows: int) -> Position:
        """Return the position after so many rows; after the last one, that after the whole chunk."""
        ends = self._decoded.ends
        is_last = rows == self._decoded.batch.num_rows
        end = self._decoded.consumed if is_last else (int(ends[rows - 1]) if rows else 0)
        self._line += self._data.count(b"\n", self._counted, end)
        self._counted = end
        return _Place(self._file, self._offset + end, self._line, self._turn).position(self._remembered)
