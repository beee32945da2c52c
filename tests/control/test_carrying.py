"""What a host does with rows that other nodes send: it keeps what it can, says so, and refuses what is none."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import headwater as hw
from headwater.control.host import row_receipt as receiving
from headwater.control.messages.events import MessageReceived, NoteRefused, SendMessage
from headwater.control.messages.row_messages import RowsKept, RowsSent, Sending, schema_name
from headwater.dataflow.compile import compile_flow
from headwater.engine import channels
from headwater.engine.channels import ORIGIN_BYTES
from headwater.engine.schemas import schemas_bytes
from headwater.model.batch import decode_entry, encode_entry, schema_id
from headwater.model.ids import InstanceId
from headwater.model.peers import Peer, key_of
from headwater.model.store_layout import schemas_prefix
from headwater.overlay.messages import HOPS_MAX
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
    def schemas(self) -> set[int]:
        """The names of the schemas that the node keeps for the app."""
        app = self.node.carrying.apps["few"].id
        with self.node.plant.store.read() as snapshot:
            return {int.from_bytes(key[-8:], "big") for key, _ in snapshot.scan(schemas_prefix(app))}

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
        {"entries": ((sequence, header),)},
        {"entries": ((sequence, encode_entry(0, 1, 0, (), b"rows beside a mark")),)},
    ):
        answers = host.answers(**changes)
        assert [type(one) for one in answers] == [NoteRefused], changes
    assert host.waiting == before


def test_schemas_that_no_entry_names_are_not_kept() -> None:
    """Else they fill the store, one message after the other, and nobody ever deletes them."""
    host = Captured()
    schema = pa.schema({"made up": pa.int64()})
    (answer,) = kept(host.answers(schemas=(told(schema),)))
    assert answer.until == host.message.sending.until
    assert schema_id(schema) not in host.schemas


def told(schema: pa.Schema) -> tuple[bytes, bytes]:
    """A schema as it comes along with rows."""
    return schema_name(schema_id(schema)), schema.serialize().to_pybytes()


def rows_of(column: str) -> tuple[pa.Schema, bytes]:
    """A schema that nobody has seen before, and an entry of such a row."""
    batch = pa.record_batch({column: [1]})
    return batch.schema, encode_entry(schema_id(batch.schema), 1, 1, (), batch.serialize().to_pybytes())


@pytest.mark.parametrize("why", ["a gap", "nothing new", "no room", "damaged rows", "a schema that is lacking"])
def test_of_a_stretch_that_is_not_taken_nothing_is_kept(why: str) -> None:
    """Neither its schemas nor the name of its queues: thirty such messages took 400 MB of the disk, for good."""
    host, since = Captured(), 100
    app, store = host.node.carrying.apps["few"], host.node.plant.store
    if why == "no room":
        host.node.plant.room_bytes = lambda app: 0  # type: ignore[method-assign]
    with store.read() as snapshot:
        before = dict(snapshot.scan(b""))
    for number in range(30):
        schema, encoded = rows_of(f"made up {number} " + "x" * 10_000)
        lacking = rows_of("nobody has it")[1]
        entries = {"damaged rows": (encoded, encoded[:-8]), "a schema that is lacking": (encoded, lacking)}
        some = tuple((since + place, one) for place, one in enumerate(entries.get(why, (encoded,))))
        base = {"a gap": since - 1, "nothing new": since + len(some)}.get(why, since)
        origin = number.to_bytes(ORIGIN_BYTES, "big")
        sending = Sending(
            "few", app.key, host.message.sending.instance, origin, base, since, since + len(some), some, (told(schema),)
        )
        host.answers_to(sending)
    with store.read() as snapshot:
        assert dict(snapshot.scan(b"")) == before
    assert app.schemas_bytes == schemas_bytes_of(host)
    assert not any("made up" in str(schema) for schema in host.node.plant.schemas._by_schema)


def schemas_bytes_of(host: "Captured") -> int:
    """What the schemas of the app take in the node's store."""
    with host.node.plant.store.read() as snapshot:
        return schemas_bytes(snapshot, host.node.carrying.apps["few"].id)


def bring(host: "Captured", number: int, column: str) -> list[Any]:
    """Have a node take a row of another schema, from a store that has sent it nothing before."""
    schema, encoded = rows_of(column)
    instance, key = host.message.sending.instance, host.message.sending.key
    origin = number.to_bytes(ORIGIN_BYTES, "big")
    return host.answers_to(Sending("few", key, instance, origin, 1, 1, 2, ((1, encoded),), (told(schema),)))


def test_the_schemas_of_an_app_have_a_limit_in_bytes_and_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if their rows are good."""
    host = Captured()
    monkeypatch.setattr(receiving, "SCHEMAS_OF_APP_MAX", schemas_bytes_of(host) + 100_000)
    answers = [answer for number in range(30) for answer in bring(host, number, f"{number} " + "x" * 10_000)]
    assert {type(one) for one in answers} == {RowsKept, NoteRefused}
    assert any("more than" in one.why for one in answers if isinstance(one, NoteRefused))
    app = host.node.carrying.apps["few"]
    assert 50_000 < schemas_bytes_of(host) == app.schemas_bytes <= receiving.SCHEMAS_OF_APP_MAX
    host.node.plant.forget("few", host.world.timeline.now)
    with host.node.plant.store.read() as snapshot:
        assert schemas_bytes(snapshot, app.id) == 0


def test_the_schemas_of_all_apps_have_a_limit_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Captured()
    monkeypatch.setattr(receiving, "SCHEMAS_OF_NODE_MAX", schemas_bytes_of(host))
    answers = bring(host, 1, "one more")
    assert [type(one) for one in answers] == [NoteRefused]
    assert "all apps" in answers[0].why


def test_so_many_stores_send_to_an_instance_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of queues are made up easily, and each is remembered as long as the app."""
    host = Captured()
    monkeypatch.setattr(channels, "ORIGINS_MAX", 5)
    answers = [answer for number in range(10) for answer in bring(host, number, "n")]
    refused = [one for one in answers if isinstance(one, NoteRefused)]
    assert refused
    assert "more than 5 stores" in refused[0].why
    instance = InstanceId(host.node.carrying.apps["few"].id, host.message.sending.instance)
    with host.node.plant.store.read() as snapshot:
        origins = list(channels.all_received(snapshot, instance))
    assert len(origins) == 5
    assert [type(one) for one in bring(host, 0, "n")] == [RowsKept]  # who was heard before goes on


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
