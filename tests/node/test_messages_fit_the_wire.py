"""The largest row that a queue takes travels: with its schema, and the names of all who have to do with it."""

from headwater.engine.cutting import ENTRY_BYTES_MAX, ROW_BYTES_MAX
from headwater.model.peers import ADDRESS_CHARS_MAX, ZONE_CHARS_MAX, Peer, key_of
from headwater.node.events import CarryingConfig
from headwater.node.row_messages import RowsSent, Sending
from headwater.runtime.links.limits import WireLimits
from headwater.runtime.links.speech import packed
from headwater.runtime.service.plant import ROOM_BYTES_MIN


def test_the_largest_row_fits_a_message_and_finds_room() -> None:
    """A megabyte of schema and whatever an entry has besides its rows, too."""
    one = Peer(key_of("one"), "x" * ADDRESS_CHARS_MAX, "x" * ZONE_CHARS_MAX)
    entry, schema = bytes(ROW_BYTES_MAX + ENTRY_BYTES_MAX), bytes(1 << 20)
    sending = Sending("a" * 500, one.id, 1, b"o" * 16, 1, 2, 3, ((2, entry),), ((5, schema),))
    assert len(packed(RowsSent(one, one, one, 9, sending), None)) <= WireLimits().message_bytes
    assert len(entry) <= ROOM_BYTES_MIN


def test_an_entry_fills_no_more_than_the_window() -> None:
    """While it is under way, others of the same instance may wait; heartbeats and other instances need not."""
    assert CarryingConfig().window_bytes >= ENTRY_BYTES_MAX
