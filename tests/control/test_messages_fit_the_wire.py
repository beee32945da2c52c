"""The largest row that a queue takes, and the largest state, travel with the names of all who have to do with them."""

from headwater.control.messages import state_messages as s
from headwater.control.messages.events import CarryingConfig
from headwater.control.messages.row_messages import RowsSent, Sending
from headwater.engine.entry_split import ENTRY_BYTES_MAX, ROW_BYTES_MAX
from headwater.engine.measuring import SCHEMA_BYTES_MAX
from headwater.engine.moving import BEGINNING
from headwater.links.limits import WireLimits
from headwater.links.speech import packed
from headwater.model.peers import ADDRESS_CHARS_MAX, ZONE_CHARS_MAX, Peer, key_of
from headwater.runtime.service.engine_shell import ROOM_BYTES_MIN


def test_the_largest_row_fits_a_message_and_finds_room() -> None:
    """The largest schema and whatever an entry has besides its rows, too."""
    one = Peer(key_of("one"), "x" * ADDRESS_CHARS_MAX, "x" * ZONE_CHARS_MAX)
    entry, schema = bytes(ROW_BYTES_MAX + ENTRY_BYTES_MAX), bytes(SCHEMA_BYTES_MAX)
    sending = Sending("a" * 500, one.id, 1, b"o" * 16, 1, 2, 3, ((2, entry),), ((b"5" * 8, schema),))
    assert len(packed(RowsSent(one, one, one, 9, sending), None)) <= WireLimits().message_bytes
    assert len(entry) <= ROOM_BYTES_MIN


def test_an_entry_fills_no_more_than_the_window() -> None:
    """While it is under way, others of the same instance may wait; heartbeats and other instances need not."""
    assert CarryingConfig().window_bytes >= ENTRY_BYTES_MAX


def test_the_largest_part_of_a_state_fits_a_message() -> None:
    """State of one key may be of any size: it is cut, and what was before it in the message is there, too."""
    one = Peer(key_of("one"), "x" * ADDRESS_CHARS_MAX, "x" * ZONE_CHARS_MAX)
    received = tuple((number.to_bytes(16, "big"), number) for number in range(s.RECEIVED_MAX))
    held = ((1, b"n" * 511, 0, bytes(s.PIECE_BYTES)), (1, b"o" * 511, 0, bytes(s.ENTRY_BYTES)))
    told = s.StateTold(one, "a" * 500, 1, (1, 1), BEGINNING, 7, held, True, received, bytes(1 << 20))
    assert len(packed(told, None)) <= WireLimits().message_bytes
