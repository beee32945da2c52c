"""Flows that the engine's tests run, and what a plain loop would make of the same rows."""

from typing import Any

import pyarrow as pa

from headwater.dataflow.stream import Flow, flow
from headwater.operators.functions import Row
from headwater.operators.state import KeyedState
from tests.dataflow.specs import Wall, rows_of_any_kind


def relay() -> Flow:
    """Rows go through one operator as they are."""
    return flow("relay", rows_of_any_kind().map(lambda batch: batch, name="pass").sink(Wall(), name="out"))


def numbered(*ids: int) -> list[Row]:
    """Return rows that only have a number."""
    return [{"id": one} for one in ids]


def ids(rows: list[Row]) -> list[int]:
    """Return the numbers of rows."""
    return [row["id"] for row in rows]


def stumble(row: dict[str, Any]) -> Row:
    """Raise on a row that says so."""
    if row.get("bad"):
        raise ValueError(f"row {row['id']} is bad")
    return row


def count_visits(batch: pa.RecordBatch, state: KeyedState) -> dict[str, Any]:
    """Number the rows of every key: the third row of a key is its third."""
    seen = state.values(default=0)
    nth = []
    for code in state.codes.tolist():
        seen[code] += 1
        nth.append(seen[code])
    state.put_values(seen)
    return {"id": batch.column("id"), "key": batch.column("key"), "nth": nth}


def counted(parallelism: int = 1) -> Flow:
    """Rows are numbered per key, by instances that each own some of the keys."""
    return flow(
        "counted",
        rows_of_any_kind()
        .key_by("key")
        .stateful(count_visits, name="count", parallelism=parallelism)
        .sink(Wall(), name="out"),
    )


def repeat(row: dict[str, Any]) -> list[Row]:
    """Return a row as often as its number modulo 3 says; every eleventh row is one that raises."""
    if row["id"] % 11 == 10:
        raise ValueError(f"cannot repeat {row['id']}")
    return [{"id": row["id"], "key": row["key"], "copy": copy} for copy in range(row["id"] % 3)]


def branching() -> Flow:
    """Every way a row can go: several readers, dead letters, keys over three instances, a filter and a split."""
    repeated = rows_of_any_kind().flat_map(repeat, name="repeat", on_error="dead-letter")
    even, odd = (
        repeated.key_by("key")
        .stateful(count_visits, name="count", parallelism=3)
        .split(
            lambda batch: [number % 2 == 0 for number in batch["id"].to_pylist()], into=("even", "odd"), name="parity"
        )
    )
    return flow(
        "branching",
        even.sink(Wall(), name="even"),
        odd.filter(lambda row: row["nth"] % 5 != 0, name="most", form="rows").sink(Wall(), name="odd"),
        repeated.select("id", name="narrow").sink(Wall(), name="copies"),
        repeated.errors.sink(Wall(), name="dead"),
    )


def branched(fed: list[Row]) -> dict[str, list[Any]]:
    """What the branching flow must write, by a plain loop: ids and counts per key, copies in order, dead letters."""
    out: dict[str, list[Any]] = {"even": [], "odd": [], "copies": [], "dead": []}
    seen: dict[Any, int] = {}
    for row in fed:
        if row["id"] % 11 == 10:
            out["dead"].append(f"ValueError: cannot repeat {row['id']}")
        else:
            for _ in range(row["id"] % 3):
                out["copies"].append(row["id"])
                nth = seen[row["key"]] = seen.get(row["key"], 0) + 1
                if row["id"] % 2 == 0:
                    out["even"].append((row["key"], row["id"], nth))
                elif nth % 5 != 0:
                    out["odd"].append((row["key"], row["id"], nth))
    return out
