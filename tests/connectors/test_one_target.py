"""One target twice in a flow is refused when the flow is compiled, whatever it is called there."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import headwater as hw
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.connectors import SinkSpec
from headwater.model.errors import FlowError

MAKERS: Final[dict[str, Callable[..., SinkSpec]]] = {
    "csv": hw.to.csv,
    "json": hw.to.json,
    "text": hw.to.text,
    "parquet": hw.to.parquet,
}
SPELLINGS: Final = {
    "the same": "{path}",
    "relative": "{relative}",
    "a detour": "{path.parent}/nowhere/../{path.name}",
    "a trailing slash": "{path}/",
    "doubled slashes": "{path.parent}//{path.name}",
    "a link to it": "{link}",
    "a link to its directory": "{directory_link}/{path.name}",
    "a file:// address": "file://{path}",
    "a file:// address with a host": "file://localhost{path}",
}


def two_sinks(one: SinkSpec, other: SinkSpec) -> hw.Flow:
    """A flow with two ends."""
    rows = hw.read.iterable([{"line": "a"}])
    return hw.flow("two", rows.sink(one, name="left"), rows.sink(other, name="right"))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("kind", MAKERS)
def test_two_sinks_with_one_target_are_refused_by_name(tmp_path: Path, kind: str, spelling: str) -> None:
    path = tmp_path / "out"
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "directory-link").symlink_to(tmp_path)
    other = SPELLINGS[spelling].format(
        path=path, relative=os.path.relpath(path), link=tmp_path / "link", directory_link=tmp_path / "directory-link"
    )
    make = MAKERS[kind]
    with pytest.raises(FlowError) as refusal:
        compile_flow(two_sinks(make(path), make(other, mode="append")))
    what = "directory" if kind == "parquet" else "file"
    assert str(refusal.value) == (
        f"flow 'two': sink 'left' and sink 'right' both use {path.resolve()}; two that write there would overwrite "
        f"each other's rows: give each a {what} of its own, or join their streams with .union(...) before one sink"
    )
    assert list(tmp_path.glob("out*")) == []


def test_a_client_id_is_for_one_as_well() -> None:
    url: dict[str, Any] = {"topic": "out", "client_id": "gate"}
    with pytest.raises(
        FlowError, match=r"both use client id 'gate' at the broker 127\.0\.0\.1:1883; the broker throws"
    ):
        compile_flow(two_sinks(hw.to.mqtt("mqtt://localhost", **url), hw.to.mqtt("mqtt://127.0.0.1:1883", **url)))
    reading = hw.read.mqtt("mqtt://broker/in", client_id="gate", name="in")
    with pytest.raises(FlowError, match="source 'in' and sink 'out' both use client id 'gate' at the broker broker:"):
        compile_flow(hw.flow("both", reading.sink(hw.to.mqtt("mqtt://BROKER/out", client_id="gate"), name="out")))


def test_an_iterator_is_read_once_and_its_stream_as_often_as_one_likes() -> None:
    items = iter([{"line": "a"}])
    one, other = hw.read.iterable(items, name="one"), hw.read.iterable(items, name="other")
    with pytest.raises(FlowError, match="source 'one' and source 'other' both use the list_iterator at 0x"):
        compile_flow(hw.flow("two", one.sink(hw.to.nothing()), other.sink(hw.to.nothing())))
    compile_flow(hw.flow("one", one.sink(hw.to.nothing()), one.sink(hw.to.nothing())))


def test_what_is_not_the_same_is_not_refused(tmp_path: Path) -> None:
    """Nor is what may be shared: a device, a broker's topic, a console, a function."""
    broker = "mqtt://broker/out"
    memory = hw.to.memory()
    pairs: list[tuple[SinkSpec, SinkSpec]] = [
        (hw.to.csv(tmp_path / "a.csv"), hw.to.csv(tmp_path / "b.csv")),
        (hw.to.text("/dev/null"), hw.to.text("/dev/null")),
        (hw.to.mqtt(broker), hw.to.mqtt(broker)),
        (hw.to.mqtt(broker, client_id="a"), hw.to.mqtt(broker, client_id="b")),
        (hw.to.mqtt(broker, client_id="a"), hw.to.mqtt("mqtt://broker:1884/out", client_id="a")),
        (hw.to.console(), hw.to.console()),
        (hw.to.call(print), hw.to.call(print)),
        (memory, memory),
    ]
    for one, other in pairs:
        compile_flow(two_sinks(one, other))


def test_an_address_of_another_kind_is_no_file() -> None:
    for address in ("s3://bucket/out.csv", "file://elsewhere/out.csv", "file://"):
        for make in (hw.to.csv, hw.to.parquet, hw.read.text):
            with pytest.raises(
                FlowError, match=r"is no place for files here; give a path of this machine, or file:///"
            ):
                make(address)


def test_a_file_address_is_the_path_it_names(tmp_path: Path) -> None:
    path = tmp_path / "a b.txt"
    lines = hw.read.iterable([{"line": "x"}])
    hw.run(hw.flow("out", lines.sink(hw.to.text(f"file://{tmp_path}/a%20b.txt"))), spark=False)
    assert path.read_text() == "x\n"
    seen = hw.to.memory()
    hw.run(hw.flow("in", hw.read.text(path.as_uri()).sink(seen)), spark=False)
    assert seen.rows() == [{"line": "x"}]


@pytest.mark.parametrize(
    ("read", "written"),
    [
        ("in.csv", "in.csv"),
        ("link.csv", "in.csv"),
        ("in", "in/out.csv"),
        ("in/*.csv", "in/out.csv"),
        ("parts", "parts"),
        ("parts/*.parquet", "parts"),
    ],
)
def test_a_flow_does_not_write_what_it_reads(tmp_path: Path, read: str, written: str) -> None:
    """With mode="overwrite" its input would be gone before it is read; a directory would give it its own rows back."""
    (tmp_path / "in").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "in.csv")
    sink = hw.to.parquet(tmp_path / written, mode="overwrite") if written == "parts" else hw.to.csv(tmp_path / written)
    rows = hw.read.csv(tmp_path / read, name="rows")
    with pytest.raises(FlowError, match=f"source 'rows' reads what sink 'out' writes, {tmp_path}/{written}; its rows"):
        compile_flow(hw.flow("loop", rows.sink(sink, name="out")))


@pytest.mark.parametrize(
    ("read", "written"),
    [("in.csv", "out.csv"), ("in", "in/sub/out.csv"), ("in/*.csv", "in/sub/out.csv"), ("in", "_in")],
)
def test_a_flow_may_write_beside_what_it_reads(tmp_path: Path, read: str, written: str) -> None:
    (tmp_path / "in").mkdir()
    compile_flow(hw.flow("beside", hw.read.csv(tmp_path / read).sink(hw.to.csv(tmp_path / written))))
