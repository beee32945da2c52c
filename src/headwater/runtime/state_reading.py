"""Looking into the state that a store has of a flow, while a node works on it or not."""

from pathlib import Path
from typing import Final

import pyarrow as pa

from headwater.dataflow.manifest import Kept, Manifest
from headwater.engine.keyed_state import StoredState
from headwater.model.errors import ConfigError
from headwater.model.ids import AppId
from headwater.model.quoting import listed
from headwater.model.store_layout import state_prefix
from headwater.operators.processors.processor_reading import timers_table, variable_table
from headwater.operators.state import OperatorState
from headwater.runtime.registry import AppRecord, Registry
from headwater.storage.lmdb_store import LmdbStore

TIMERS: Final = "timers"  # the name by which an operator's timers are asked for
_STORE_BYTES: Final = 1 << 30  # of address space, in which a store may be larger on the disk

_VARIABLES: Final = pa.schema(
    {
        "operator": pa.string(),
        "variable": pa.string(),
        "kind": pa.string(),
        "schema": pa.string(),
        "key_schema": pa.string(),
        "ttl_ms": pa.int64(),
        "instances": pa.int64(),
        "time_mode": pa.string(),
    }
)


def read_state(store: str | Path, flow: str, operator: str | None = None, variable: str | None = None) -> pa.Table:
    """Return what a variable of a processor holds; without a variable, which there are."""
    directory = Path(store)
    if not (directory / "data.mdb").exists():
        raise ConfigError(f"there is no store in {directory}")
    opened = LmdbStore(directory, disk_bytes=_STORE_BYTES)
    try:
        record, manifest = _record(opened, flow)
        if operator is None or variable is None:
            return _variables(manifest, operator)
        kept = _kept(manifest, operator)
        state = OperatorState(StoredState(opened, state_prefix(AppId(record.number), manifest.number_of(operator))))
        if variable == TIMERS and variable not in kept.variables:
            return timers_table(state)
        if variable not in kept.variables:
            raise ConfigError(f"{operator!r} has no state variable {variable!r}, but: {listed(kept.variables)}")
        return variable_table(state, variable, kept.variables[variable][-1])
    finally:
        opened.close()


def _record(store: LmdbStore, flow: str) -> tuple[AppRecord, Manifest]:
    record = Registry(store).find(flow)
    if record is None or record.manifest is None:
        raise ConfigError(f"the store in {store.directory} has nothing of a flow {flow!r}")
    return record, record.manifest


def _kept(manifest: Manifest, operator: str) -> Kept:
    kept = manifest.find(operator)
    if kept is None or not kept.variables:
        known = listed(one.name for one in manifest.kept if one.variables) or "nothing"
        raise ConfigError(f"{operator!r} is no operator with state variables; what has some: {known}")
    return kept


def _variables(manifest: Manifest, operator: str | None) -> pa.Table:
    chosen = manifest.kept if operator is None else [_kept(manifest, operator)]
    rows = []
    for one in chosen:
        common = {
            "operator": one.name,
            "instances": one.parallelism,
            "time_mode": one.settings.get("time_mode", "").strip("'"),
        }
        for name, schemas in one.variables.items():
            declared = schemas[-1]
            rows.append(
                {
                    **common,
                    "variable": name,
                    "kind": declared.kind,
                    "schema": declared.value,
                    "key_schema": declared.key or None,
                    "ttl_ms": one.ttl_ms.get(name),
                }
            )
        if common["time_mode"] not in ("", "none"):
            rows.append({**common, "variable": TIMERS, "kind": "Timer", "schema": "expiry_ms bigint"})
    return pa.Table.from_pylist(rows, schema=_VARIABLES)
