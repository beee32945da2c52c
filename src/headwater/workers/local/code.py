"""Users' code for workers: pickled once when an app is deployed, kept in the store, unpickled once per worker.

It is built from a flow on this machine; no pickle comes from a peer.
"""

import sys
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import cloudpickle
import msgspec

from headwater.dataflow.graph import Graph
from headwater.engine.plans import ChainPlan, plan_chain
from headwater.loading.module_isolation import know_text, modules_in, text_being_built, users_modules
from headwater.model.errors import EngineError, FlowError, StoreError
from headwater.model.ids import AppId
from headwater.model.store_contract import Snapshot
from headwater.model.store_layout import code_key
from headwater.operators.chain import OpenChain
from headwater.spark.sql import bound

ANY_APP: Final = AppId(0)  # a placeholder; a worker puts in the app's number when it reads the code
_packed: dict[int, tuple[weakref.ref[Graph], tuple[bytes, ...]]] = {}  # by the identity of a live graph
_PACKING: Final = threading.Lock()
_KNOWN_MAX: Final = 2_000  # open chains of a worker; beyond it the cache is cleared, and each is read once more


class _Packed(msgspec.Struct, array_like=True):
    """Pickled code, and the import paths of its modules."""

    paths: list[str]
    pickled: bytes
    text: str = ""  # the folder of the flow's own text, if it came as text
    at_top: list[str] = []  # those that it has imported itself


def pack_graph(graph: Graph) -> Sequence[bytes]:
    """Return the code of a graph's chains, cached, as an application may be deployed many times."""
    place = id(graph)  # unique while the graph lives; then the entry is removed
    with _PACKING:
        known = _packed.get(place)
        if known is None:
            known = _packed[place] = (weakref.ref(graph, lambda _: _packed.pop(place, None)), _pack_plans(graph))
    return known[1]


def _pack_plans(graph: Graph) -> tuple[bytes, ...]:
    """Pickle the plans; the user's own modules are pickled by value, so that workers need no files of theirs."""
    plans = [plan_chain(graph, ANY_APP, chain) for chain in graph.chains]
    own = users_modules().values()
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        return tuple(_pack(plan) for plan in plans)
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def _pack(plan: ChainPlan) -> bytes:
    try:
        pickled = cloudpickle.dumps(replace(plan, operators=tuple(bound(named) for named in plan.operators)))
    except Exception as failure:  # pickling calls into whatever a function refers to
        names = ", ".join(named.name for named in plan.operators)
        raise FlowError(
            f"flow {plan.flow!r}: the code of {names} cannot be sent to workers ({type(failure).__name__}: {failure}); "
            "create files, locks and connections inside the function instead of outside"
        ) from failure
    text = text_being_built.get()
    if text is None:
        return msgspec.msgpack.encode(_Packed([path for path in sys.path if path], pickled))
    others = [path for path in sys.path if path and path != str(text)]  # modules beside a flow are for that flow alone
    return msgspec.msgpack.encode(_Packed(others, pickled, str(text), sorted(modules_in(text))))


class CodeShelf:
    """A worker's cache of open chains, so that code is not read and unpickled per turn."""

    def __init__(self) -> None:
        self._open: dict[tuple[AppId, int], tuple[ChainPlan, OpenChain]] = {}

    def find(self, snapshot: Snapshot, app: AppId, number: int) -> tuple[ChainPlan, OpenChain]:
        """Return the chain whose code has this number, opened."""
        known = self._open.get((app, number))
        if known is None:
            if len(self._open) >= _KNOWN_MAX:
                self._open.clear()
            packed = snapshot.get(code_key(app, number))
            if packed is None:
                raise StoreError(f"the store lacks code {number} of app {app}")
            known = self._open[app, number] = _load(packed, app)
        return known


def _load(packed: bytes, app: AppId) -> tuple[ChainPlan, OpenChain]:
    code = msgspec.msgpack.decode(packed, type=_Packed)
    sys.path.extend(path for path in code.paths if path not in sys.path)
    if code.text:
        know_text(Path(code.text), code.at_top)
    try:
        plan: ChainPlan = replace(cloudpickle.loads(code.pickled), app=app)
        return plan, plan.open()
    except Exception as failure:  # unpickling imports the user's modules, which may raise anything
        raise EngineError(
            f"the flow's code cannot be loaded in a worker: {type(failure).__name__}: {failure}"
        ) from failure
