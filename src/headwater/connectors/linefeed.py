"""Reading files of lines: from a position, to the end or, when following, on and on.

A position is a file's name, the byte behind the last row and the number of its line, and a checksum of the file's
beginning that tells it from another file under the same name. Chunks are cut at the end of a line, so a half-written
last line is no row until its newline comes; only at the end of a file that is not followed it is one.
"""

from dataclasses import dataclass
from typing import Final

from headwater.connectors.decoding import BadLine, Decoded, Decoder
from headwater.connectors.files import AFRESH, FileList, OpenFile, reopen
from headwater.connectors.lines import Cut
from headwater.connectors.reading import Piece, Waiting
from headwater.dataflow.connectors import Position
from headwater.model.errors import ConnectorError

CHUNK_BYTES: Final = 256 * 1024  # about 5 ms to parse: long enough to be fast, short enough not to hold up others
LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(slots=True)
class _Place:
    """Where reading goes on."""

    file: OpenFile
    offset: int
    line: int
    turn: int

    def where(self) -> str:
        return f"{self.file.path}:{self.line}"


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
    ) -> None:
        """Go on behind the position, or at the first line of the first file."""
        self._files, self._decoder = files, decoder
        self._follow, self._loop, self._chunk_bytes = follow, loop, chunk_bytes
        self._place: _Place | None = None
        self._finishing = False  # the followed file has a successor: its rest is all there will be
        self._begun = False  # what precedes the rows of this file has been read
        self._rows_this_turn = 0
        if position is not None:
            file = reopen(self._listed(position["file"]), position["offset"], position["head"], follow=follow)
            self._place = _Place(file, position["offset"], position["line"], position["turn"])
            self._rows_this_turn = 1  # a position is behind at least one line
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

    def close(self) -> None:
        """Close the file at hand."""
        if self._place is not None:
            self._place.file.close()
            self._place = None

    def _next_piece(self, place: _Place) -> Piece | Waiting | None:
        """Return rows of the file at hand; None behind its last one."""
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
            else:
                size = self._larger(size, place)

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
        if size >= LINE_BYTES_MAX:
            raise ConnectorError(
                f"{place.where()}: the line is longer than {LINE_BYTES_MAX >> 20} MiB; "
                "check that the file is of lines and that every quote is closed"
            )
        return min(size * 4, LINE_BYTES_MAX)

    def _piece(self, place: _Place, data: bytes, decoded: Decoded) -> Piece:
        position_after = _Positions(place, data, decoded, self._decoder.known.remembered()).after
        self._place = _Place(
            place.file,
            place.offset + decoded.consumed,
            place.line + data.count(b"\n", 0, decoded.consumed),
            place.turn,
        )
        self._rows_this_turn += decoded.batch.num_rows
        return Piece(decoded.batch, position_after, turn=place.turn, bad_before=decoded.bad_before)

    def _begin(self, place: _Place) -> bool:
        """Read the mark and the header of a file, wherever in it the rows go on."""
        place.file.refuse_if_compressed()
        size = self._chunk_bytes
        while True:
            data = place.file.read(0, size)
            mark = len(_BYTE_ORDER_MARK) if data.startswith(_BYTE_ORDER_MARK) else 0
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
            size = self._larger(size, place)
        if place.offset < mark + length:
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
            return Waiting()
        self._finishing = True  # it may have grown since it was read: read it once more, to its very end
        return self._next_piece(place)

    def _next_file(self, place: _Place) -> bool:
        """Turn to the file behind this one; False at the end of all."""
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
        if path is not None:
            self._place = _Place(OpenFile(path), 0, 1, turn)
        return path is not None

    def _listed(self, path: str) -> str:
        """Refuse a file that the path of this source does not cover."""
        if not self._files.covers(path):
            raise ConnectorError(
                f"{path}, which was being read when the app stopped, is no longer part of {self._files.path}; "
                f"put it back, {AFRESH}"
            )
        return path


class _Positions:
    """The positions inside one chunk, asked for in order."""

    def __init__(self, place: _Place, data: bytes, decoded: Decoded, remembered: dict[str, bytes]) -> None:
        self._file, self._offset, self._turn = place.file, place.offset, place.turn
        self._data, self._decoded, self._remembered = data, decoded, remembered
        self._counted, self._line = 0, place.line

    def after(self, rows: int) -> Position:
        """Return the position behind so many rows; behind the last one, behind the whole chunk."""
        ends = self._decoded.ends
        is_last = rows == self._decoded.batch.num_rows
        end = self._decoded.consumed if is_last else (int(ends[rows - 1]) if rows else 0)
        self._line += self._data.count(b"\n", self._counted, end)
        self._counted = end
        offset = self._offset + end
        return {
            "file": self._file.path,
            "offset": offset,
            "line": self._line,
            "head": self._file.head(offset),
            "turn": self._turn,
            **self._remembered,
        }
