"""What arrives is a message or refused, whatever the bytes: nothing else comes out of the decoder, and nothing runs.

`tests/links/fuzz.py` does the same for as long as one likes, led by coverage (atheris).
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect

from headwater.client.flow_text import read_flow
from headwater.client.questions import AnswerKind, Forget, QuestionKind, question_decoder
from headwater.client.requests import REQUESTS
from headwater.control.messages.app_messages import (
    CHAINS_MAX,
    FLOW_BYTES_MAX,
    OPERATORS_MAX,
    SOURCES_MAX,
    WHENCES_MAX,
    AnyNodeMessage,
    AppSpec,
    ChainSpec,
    HandedOver,
    LoadTold,
    PathAsked,
    Placed,
    RegisterAsked,
    RegisterEntry,
    StartAsked,
    StewardAsked,
    Whence,
)
from headwater.control.messages.row_messages import HomeWanted
from headwater.control.messages.state_messages import StateSought
from headwater.engine.times import Times
from headwater.links.incoming import message_decoder
from headwater.links.speech import Asked, Greeting, ToDialler, packed, unpacked
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import FlowError
from headwater.model.frames import BrokenFrame
from headwater.model.ids import APP_CHARS_MAX, INSTANCES_MAX, NAME_CHARS_MAX
from headwater.model.peers import ADDRESS_CHARS_MAX, ID_BYTES, ZONE_CHARS_MAX, NodeId, Peer
from headwater.overlay.messages import Heartbeat, Pong
from tests.links.fuzz import decode_anything

KINDS = [kind.__struct_config__.tag for kind in AnyNodeMessage.__args__]
NODE_IDS = st.binary(min_size=ID_BYTES, max_size=ID_BYTES)
PEERS = st.tuples(NODE_IDS, st.text(max_size=20), st.text(max_size=20))
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.text(), st.binary(), PEERS
)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5))


@given(st.binary(max_size=500))
@example(b"\x01\xff\xff\xff\xff" + b"x" * 20)
@example(b"\x00" + b"\x91" * 400)
@example(msgspec.msgpack.encode(["hb", (bytes(ID_BYTES), "here", "z")]).replace(b"here", b"\xff\xff\xff\xff"))
def test_bytes_are_decoded_or_refused(data: bytes) -> None:
    decode_anything(data)


@given(st.sampled_from(KINDS), PEERS, st.lists(VALUES, max_size=8))
def test_values_in_the_form_of_a_message_are_one_or_refused(kind: str, sender: object, rest: list[object]) -> None:
    """Nearly right is what an older or an evil node sends."""
    try:
        message = message_decoder.decode(msgspec.msgpack.encode([kind, sender, *rest]))
    except UNDECODABLE:
        return
    assert len(message.sender.id) == ID_BYTES
    again = message_decoder.decode(unpacked(packed(message, None), 1 << 20))
    assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(message)


NAMES = st.text("ab/.\0", max_size=6).map(lambda name: f"{name}.py") | st.text(max_size=10)
FLOWS = st.fixed_dictionaries(
    {"name": st.text(), "fingerprint": st.text(), "written": NAMES},
    optional={"files": st.dictionaries(NAMES, st.text(), max_size=3), "called": NAMES, "ends": VALUES},
)
CALLS = (*get_args(QuestionKind), *get_args(AnswerKind), *REQUESTS.roles)


@given(st.sampled_from(CALLS), st.lists(VALUES, min_size=10, max_size=10))
def test_values_in_the_form_of_a_question_or_a_request_are_one_or_refused(
    kind: type[msgspec.Struct], values: list[object]
) -> None:
    config = kind.__struct_config__
    named = {str(config.tag_field): config.tag, **dict(zip(kind.__struct_encode_fields__, values, strict=False))}
    decode_anything(msgspec.msgpack.encode([config.tag, *values] if config.array_like else named))


@given(FLOWS)
@example({"name": "a", "fingerprint": "", "written": "../a.py", "files": {"../a.py": ""}})
@example({"name": "a", "fingerprint": "", "written": "a.py", "files": {"a.py": "", "b/a.py": ""}})
def test_a_flow_has_its_files_below_its_own_directory_or_is_refused(flow: dict[str, object]) -> None:
    with contextlib.suppress(FlowError):
        here = Path("/here")
        for name in read_flow(msgspec.msgpack.encode(flow)).files:
            assert (here / name).resolve().is_relative_to(here)


@given(st.binary(max_size=20_000), st.integers(0, 10_000))
def test_what_is_packed_is_unpacked_to_the_same(data: bytes, compress_from: int) -> None:
    assert msgspec.msgpack.decode(unpacked(packed(data, compress_from), 1 << 20)) == data


@given(st.binary(min_size=100, max_size=2_000), st.data())
def test_a_damaged_message_is_refused_or_decoded_never_more(data: bytes, draw: st.DataObject) -> None:
    whole = bytearray(packed(data * 10, 0))
    at = draw.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= draw.draw(st.integers(1, 255))
    with contextlib.suppress(BrokenFrame):
        assert len(unpacked(bytes(whole), 50_000)) <= 50_000


def test_a_message_that_claims_to_be_huge_is_not_unpacked() -> None:
    with pytest.raises(BrokenFrame, match="unpacks to 4294967295 bytes; at most 1000 are allowed"):
        unpacked(b"\x01" + b"\xff" * 4 + b"tiny", 1_000)
    bomb = packed(bytes(10 << 20), 0)
    assert len(bomb) < 10_000
    with pytest.raises(BrokenFrame, match="at most"):
        unpacked(bomb, 1 << 20)
    lying = bomb[:1] + (100).to_bytes(4, "little") + bomb[5:]
    with pytest.raises(BrokenFrame, match="cannot be unpacked"):
        unpacked(lying, 1 << 20)


A = Peer(NodeId(bytes(ID_BYTES)), "127.0.0.1:7100", "zone")


def start(app: str = "a", instance: int = 0, flow: bytes = b"", load: int = 0, **chain: object) -> StartAsked:
    """Somebody is asked to run an instance."""
    spec = msgspec.structs.replace(ChainSpec("chain", 1, 0, (0,)), **chain)
    return StartAsked(A, app, 1, instance, spec, A, flow, A.id, load)


def register(sources: int = 1, chains: int = 1, name: str = "a") -> RegisterAsked:
    """A steward is asked to take care of an app."""
    return RegisterAsked(A, 1, AppSpec(name, A.id, (A,) * sources, (ChainSpec("chain", 1, 0, (0,)),) * chains))


@pytest.mark.parametrize(
    ("within", "beyond"),
    [
        (start(app="a" * APP_CHARS_MAX), start(app="a" * (APP_CHARS_MAX + 1))),
        (start(instance=INSTANCES_MAX - 1), start(instance=INSTANCES_MAX)),
        (start(instance=-SOURCES_MAX), start(instance=-SOURCES_MAX - 1)),
        (start(flow=bytes(FLOW_BYTES_MAX)), start(flow=bytes(FLOW_BYTES_MAX + 1))),
        (start(load=0), start(load=-1)),
        (start(name="c" * NAME_CHARS_MAX), start(name="c" * (NAME_CHARS_MAX + 1))),
        (start(operators=OPERATORS_MAX), start(operators=OPERATORS_MAX + 1)),
        (start(operators=0), start(operators=-1)),
        (start(stage=CHAINS_MAX), start(stage=CHAINS_MAX + 1)),
        (start(stage=0), start(stage=-1)),
        (start(sources=(0,) * SOURCES_MAX), start(sources=(0,) * (SOURCES_MAX + 1))),
        (register(sources=SOURCES_MAX), register(sources=SOURCES_MAX + 1)),
        (register(chains=CHAINS_MAX), register(chains=CHAINS_MAX + 1)),
        (register(name="a" * APP_CHARS_MAX), register(name="a" * (APP_CHARS_MAX + 1))),
        (LoadTold(A, OPERATORS_MAX, OPERATORS_MAX), LoadTold(A, OPERATORS_MAX + 1, OPERATORS_MAX)),
        (LoadTold(A, 0, 0), LoadTold(A, 0, -1)),
        (PathAsked(A, "a", A.id, 1, SOURCES_MAX - 1), PathAsked(A, "a", A.id, 1, SOURCES_MAX)),
        (StewardAsked(A, 1, A, 0, 0), StewardAsked(A, 1, A, 0, -1)),
        (HomeWanted(A, "a", 0), HomeWanted(A, "a", -1)),
        (StateSought(A, "a", INSTANCES_MAX - 1, (0, 0)), StateSought(A, "a", INSTANCES_MAX, (0, 0))),
        (
            Heartbeat(A._replace(address="a" * ADDRESS_CHARS_MAX, zone="z" * ZONE_CHARS_MAX)),
            Heartbeat(A._replace(address="a" * (ADDRESS_CHARS_MAX + 1))),
        ),
        (Heartbeat(A), Heartbeat(A._replace(zone="z" * (ZONE_CHARS_MAX + 1)))),
    ],
    ids=lambda message: type(message).__name__,
)
def test_names_and_numbers_are_taken_up_to_their_limit_and_no_further(
    within: AnyNodeMessage, beyond: AnyNodeMessage
) -> None:
    """Else a node in wrong hands has others keep what it likes, and reckon with what cannot be told any more."""
    assert message_decoder.decode(msgspec.msgpack.encode(within)) == within
    with pytest.raises(msgspec.ValidationError):
        message_decoder.decode(msgspec.msgpack.encode(beyond))


def unlimited(kind: inspect.Type, path: str, above: tuple[type, ...] = ()) -> Iterator[str]:
    """Where in a type there may be as much as anybody likes to send, or a number that nobody can reckon with."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from unlimited(inner, path, above)
        case inspect.StructType() | inspect.DataclassType() if kind.cls not in above:
            for field in kind.fields:
                yield from unlimited(field.type, f"{path}.{field.name}", (*above, kind.cls))
        case inspect.NamedTupleType():
            for field in kind.fields:
                yield from unlimited(field.type, f"{path}.{field.name}", above)
        case inspect.TupleType():
            for place, item in enumerate(kind.item_types):
                yield from unlimited(item, f"{path}[{place}]", above)
        case inspect.UnionType():
            for one in kind.types:
                yield from unlimited(one, path, above)
        case inspect.IntType() | inspect.FloatType():
            if (kind.ge is None and kind.gt is None) or (kind.le is None and kind.lt is None):
                yield path
        case inspect.StrType() | inspect.BytesType():
            if kind.max_length is None:
                yield path
        case inspect.CollectionType() | inspect.DictType():
            if kind.max_length is None:
                yield path
            inner = kind.value_type if isinstance(kind, inspect.DictType) else kind.item_type
            yield from unlimited(inner, f"{path}[]", above)
            if isinstance(kind, inspect.DictType):
                yield from unlimited(kind.key_type, f"{path} by name", above)
        case inspect.RawType():
            assert path in ("Asked.request", "Answered.answer"), path  # bytes of a frame, decoded by types below
        case _:
            harmless = (inspect.BoolType, inspect.NoneType, inspect.EnumType, inspect.LiteralType, inspect.StructType)
            assert isinstance(kind, harmless), (path, kind)


SPOKEN = (Greeting, Asked, *get_args(ToDialler))
KEPT = (Times,)  # state of an instance that moves


@pytest.mark.parametrize("kind", [*get_args(AnyNodeMessage), *CALLS, *SPOKEN, *KEPT], ids=lambda kind: kind.__name__)
def test_everything_in_a_message_has_a_limit(kind: type) -> None:
    """A hundred thousand peers in one message took the node that asked them all seven seconds, in which it is dead.

    A stage of -2^62 ended a steward's tick, forty times a second, and 2^64 - 1 what it wanted to say of the app.
    """
    assert list(unlimited(inspect.type_info(kind), kind.__name__)) == []


@pytest.mark.parametrize("app", ["../etc", "a/b", "a\\n", "", ".a", "a\0", "a@b", "a@0123456", "\u202ea", "a b"])
def test_an_app_is_called_as_a_user_may_call_it(app: str) -> None:
    """Its name comes to stand in logs, metrics, store keys and the names of files."""
    for name in ("taxi", "a.b-c_D9", "taxi@0123abcd"):
        message_decoder.decode(msgspec.msgpack.encode(StateSought(A, name, 0, (0, 0))))
    with pytest.raises(msgspec.ValidationError):
        message_decoder.decode(msgspec.msgpack.encode(StateSought(A, app, 0, (0, 0))))
    with pytest.raises(msgspec.ValidationError):
        question_decoder.decode(msgspec.msgpack.encode(Forget(app)))


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -float("inf"), 2.0])
def test_a_figure_is_a_number_within_its_bounds(figure: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        message_decoder.decode(msgspec.msgpack.encode(Pong(A, 1, figure)))


def placed(*instances: int, whences: int = 0) -> RegisterEntry:
    """An app of one chain, and where its instances are."""
    whence = None
    for lot in range(whences):
        whence = Whence(A, (1, lot), before=whence)
    spec = AppSpec("a", A.id, (A,), (ChainSpec("chain", 1, 0, (0,)),))
    return RegisterEntry(spec, 1, 1, "starting", tuple(Placed(one, A, A, (1, 1), whence) for one in instances), A)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (placed(0), lambda raw: raw[4].append([1, *raw[4][0][1:]])),
        (placed(0), lambda raw: raw[4].append(raw[4][0])),
        (placed(0), lambda raw: raw.__setitem__(3, "sleeping")),
        (placed(0, whences=WHENCES_MAX), lambda raw: raw[4][0].__setitem__(4, [list(A), [1, 9], False, raw[4][0][4]])),
    ],
    ids=["no chain", "twice", "no phase", "too deep"],
)
def test_an_app_that_cannot_be_placed_so_is_no_message(
    before: RegisterEntry, after: Callable[[list[Any]], None]
) -> None:
    """Whoever goes on from it looks for the chain of each instance, every second, among other things to be done."""
    assert message_decoder.decode(msgspec.msgpack.encode(HandedOver(A, (before,)))) == HandedOver(A, (before,))
    raw = msgspec.msgpack.decode(msgspec.msgpack.encode(HandedOver(A, (before,))))
    after(raw[2][0])
    with pytest.raises(msgspec.ValidationError):
        message_decoder.decode(msgspec.msgpack.encode(raw))


def test_a_short_message_costs_one_byte_more_than_itself() -> None:
    beat = Heartbeat((bytes(ID_BYTES), "a:1", "z"))  # type: ignore[arg-type]
    assert len(packed(beat, 4_096)) == len(msgspec.msgpack.encode(beat)) + 1


def test_the_coverage_led_fuzzer_finds_nothing_in_a_short_run(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed: pip install atheris (Linux, Python 3.11 to 3.13)")
    fuzzer = Path(__file__).with_name("fuzz.py")
    done = subprocess.run(
        [sys.executable, fuzzer, "-runs=20000", "-max_len=512", "-seed=1", tmp_path],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
