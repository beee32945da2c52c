"""What a host does with rows that other nodes send: it keeps what it can, says so, and refuses what is none."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

import headwater as hw
from headwater.dataflow.compile import compile_flow
from headwater.engine.store import schema_key
from headwater.model.batch import decode_entry, schema_id
from headwater.model.peers import Peer, key_of
from headwater.node.events import MessageReceived, NoteRefused, SendMessage
from headwater.node.row_messages import HOPS_MAX, RowsKept, RowsSent, Sending
from headwater.sim.flows import FlowWorld, PlantedNode
from headwater.sim.witness import Witness

SENDER = Peer(key_of("sender"), "far", "elsewhere")
ROWS = [{"n": n} for n in range(4)]


def as_they_are(row: hw.Row) -> hw.Row:
    """Change nothing."""
    return row


class Captured:
    """A node that runs the second of two instances, and the rows that the first sent it."""

    def __init__(self) -> None:
        """Let rows travel between two nodes, and remember a message."""
        self.seen: list[tuple[str, RowsSent]] = []
        world = self.world = FlowWorld(3, nodes=3, zones=1, links_fail=False, witness=_Ears(self.seen))
        world.add()
        for _ in range(2):
            world.join()
            world.run(0.3)
        assert world.run_until(world.is_whole, at_most=60)
        rows = hw.read.iterable(ROWS).map(as_they_are)
        world.submit_flow(compile_flow(hw.flow("few", rows.sink(hw.to.memory())), chaining=False))
        assert world.run_until(world.is_done, at_most=60)
        address, self.message = next(
            (address, message) for address, message in self.seen if self._runs(address, message.sending.instance)
        )
        node = world.nodes[address]
        assert isinstance(node, PlantedNode)
        self.node = node

    def _runs(self, address: str, instance: int) -> bool:
        node = self.world.nodes[address]
        return isinstance(node, PlantedNode) and instance in node.plant.apps["few"].here

    def answers(self, **changes: Any) -> list[Any]:
        """Return what the node answers to rows like those, from another store, and changed like this."""
        sending = msgspec.structs.replace(self.message.sending, origin=b"another store!!!", **changes)
        return self.answers_to(sending)

    def answers_to(self, sending: Sending, hops: int = 1) -> list[Any]:
        """Return what the node does with rows that it is sent."""
        message = RowsSent(SENDER, SENDER, None, hops, sending)
        effects = self.node.handle(MessageReceived(message), self.world.timeline.now)
        return [one.message if isinstance(one, SendMessage) else one for one in effects]

    @property
    def waiting(self) -> int:
        """Rows that the node has of the app, taken or not."""
        ledger = self.world.ledger("few")
        return ledger.rows_out + ledger.waiting


class _Ears(Witness):
    def __init__(self, seen: list[tuple[str, RowsSent]]) -> None:
        super().__init__()
        self._seen = seen

    def saw(self, now: object, address: str, event: object) -> None:
        message = getattr(event, "message", None)
        if isinstance(message, RowsSent):
            self._seen.append((address, message))


def kept(answers: Sequence[Any]) -> list[RowsKept]:
    """Return the words to the sender."""
    return [one for one in answers if isinstance(one, RowsKept)]


def test_rows_are_kept_and_said_to_be() -> None:
    """The sender hears up to which number it may forget, and how much more would be taken."""
    host = Captured()
    (answer,) = kept(host.answers())
    assert (answer.until, answer.lacks_schema) == (host.message.sending.until, False)
    assert answer.room_bytes > 0


def test_a_schema_that_nobody_sent_is_asked_for() -> None:
    """Rows that could not be read are not kept."""
    host = Captured()
    unknown = tuple((sequence, b"\x07" * 8 + encoded[8:]) for sequence, encoded in host.message.sending.entries)
    (answer,) = kept(host.answers(entries=unknown, schemas=()))
    assert (answer.until, answer.lacks_schema) == (host.message.sending.base, True)


def test_bytes_that_are_no_rows_are_refused_and_told_of() -> None:
    """A peer that sends nonsense changes nothing, and whoever operates the node can see it."""
    host = Captured()
    before = host.waiting
    [(sequence, encoded)] = host.message.sending.entries[:1]
    header = encoded[: -len(decode_entry(encoded).payload)]
    for changes in (
        {"entries": ((sequence, header + b"no rows"),)},
        {"entries": ((0, b"nonsense"),)},
        {"entries": ((9_999, host.message.sending.entries[0][1]),)},
        {"schemas": ((1, b"no schema"),)},
    ):
        answers = host.answers(**changes)
        assert [type(one) for one in answers] == [NoteRefused], changes
    assert host.waiting == before


def test_schemas_that_no_entry_names_are_not_kept() -> None:
    """Else they fill the store, one message after the other, and nobody ever deletes them."""
    host = Captured()
    schema = pa.schema({"made up": pa.int64()})
    (answer,) = kept(host.answers(schemas=((schema_id(schema), schema.serialize().to_pybytes()),)))
    assert answer.until == host.message.sending.until
    with host.node.plant.store.read() as snapshot:
        assert snapshot.get(schema_key(schema_id(schema))) is None


def test_a_host_without_room_keeps_nothing_and_says_so() -> None:
    """The rows stay with their sender, which tries again."""
    host = Captured()
    host.node.plant.room_bytes = lambda app: 0  # type: ignore[method-assign]
    (answer,) = kept(host.answers())
    assert (answer.until, answer.room_bytes) == (host.message.sending.base, 0)


def test_rows_that_find_no_home_do_not_travel_for_ever() -> None:
    """Of an app that nobody knows, rows climb to the root and end there."""
    host = Captured()
    lost = msgspec.structs.replace(host.message.sending, app="gone", key=key_of("gone"))
    assert host.answers_to(lost, hops=HOPS_MAX) == []
