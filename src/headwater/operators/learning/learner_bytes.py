"""Online learners as bytes: kept as state, and moved from node to node.

A river model is a tree of plain Python objects, and pickle is the one format that all of them know. But bytes that come
from a peer must never run code, so they are read by an unpickler that knows next to nothing. It gives out

- classes and functions that river defines in its packages for learning (not those that read files or the network: such
  as `river.datasets` and `river.stream`), each only under the name by which it calls itself;
- a few plain classes of the standard library; `functools.partial` among them, which can only call what is on this list,
  and the bytes could call that anyway;
- the parts of the flow's own model that are neither: functions, and classes derived from river's. They stand in the
  bytes by name and are taken from the model that came with the flow: the bytes can refer to them, not define them;
- the functions at the end of this module, by which arrays, random generators and bound methods are written. NumPy's own
  would take a crafted dtype from the bytes, and a bound method's own is `getattr`.

So crafted bytes can build a strange learner; they reach no file, no process, and no code that is not river's or the
author's. What is done with those names is watched the first time that bytes are read (`learner_reading.py`). What river
itself cannot pickle is refused.
"""

import io
import pickle
import random
import statistics
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache, partial
from hashlib import blake2b
from importlib import import_module
from numbers import Number
from re import Pattern
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from headwater.model.errors import StoreError
from headwater.operators.functions import WrongResult
from headwater.operators.learning.learner_reading import StepByStep
from headwater.operators.state_values import WrongState

LEARNING_PACKAGES: Final = frozenset(
    (
        *("_river_rust", "active", "anomaly", "base", "cluster", "compose", "covariance", "drift", "dummy"),
        *("ensemble", "facto", "feature_extraction", "feature_selection", "forest", "imblearn", "linear_model"),
        *("metrics", "misc", "model_selection", "multiclass", "multioutput", "naive_bayes", "neighbors"),
        *("neural_net", "optim", "preprocessing", "proba", "reco", "rules", "sketch", "stats", "time_series"),
        *("tree", "utils"),
    )
)
_PLAIN: Final = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for kind in (
        *(bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice),
        *(Counter, OrderedDict, defaultdict, deque, partial),
        *(date, datetime, time, timedelta, timezone, Decimal),
        *(random.Random, statistics.NormalDist, Number),
    )
}
KNOWN_MAX: Final = 50_000  # digests of bytes that need not be watched again: less than 10 MB
NAMES_MAX: Final = 4_096  # that are remembered: river has some thousand
REFUSAL_CHARS: Final = 300
_ARRAY_KINDS: Final = frozenset("biufcSUmM")  # no objects and no records: their bytes could be taken for pointers
_RandomState: Final = np.random.RandomState
_MERSENNE_WORDS: Final = 624
_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodDescriptorType, Pattern)
_MASTER_KEYS: Final = (getattr, setattr, eval, exec, compile, open, __import__)  # each opens all other doors


class LearnerBytes:
    """Turns copies of one model into bytes and back."""

    def __init__(self, template: tuple[Any, ...]) -> None:
        """Learn the names of the parts of this model, which is the flow's own."""
        self._kinds = [type(part) for part in template]
        self._names: dict[int, str] = {}
        self._parts: dict[str, Any] = {}
        self._known: dict[bytes, None] = {}  # digests of bytes that we have written, or looked at
        _Writer(io.BytesIO(), self._discovered).dump(template)
        self._fresh = self.encode(template)

    def fresh(self) -> tuple[Any, ...]:
        """Return a copy of the model as it came with the flow."""
        return self.decode(self._fresh)

    def encode(self, learner: tuple[Any, ...]) -> bytes:
        """Return the bytes of a learner."""
        written = io.BytesIO()
        try:
            _Writer(written, self._name).dump(learner)
        except RecursionError:
            raise WrongResult(
                "the model has grown too deep to be kept as state; limit it, with max_depth or another splitter"
            ) from None
        encoded = written.getvalue()
        self._remember(_digest(encoded))
        return encoded

    def decode(self, encoded: bytes) -> tuple[Any, ...]:
        """Return the learner that has these bytes, or refuse them: another node may have made them up.

        What we have written ourselves, or have read before, need not be watched.
        """
        digest = _digest(encoded)
        try:
            learner = (self._plainly if digest in self._known else self._watched)(encoded).load()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as failure:  # bytes that were never a learner may fail in any way, also in river's Rust
            raise StoreError(
                f"the bytes of a learner are refused: {str(failure)[:REFUSAL_CHARS] or type(failure).__name__}"
            ) from failure
        if not isinstance(learner, tuple) or [type(part) for part in learner] != self._kinds:
            raise StoreError("the bytes of a learner are refused: they hold something else than the flow's model")
        self._remember(digest)
        return learner

    def _plainly(self, encoded: bytes) -> "_Reader":
        return _Reader(encoded, self._found)

    def _watched(self, encoded: bytes) -> StepByStep:
        return StepByStep(encoded, self._found, _CHECKED, self._part, _PLAIN_KINDS)

    def _found(self, module: str, name: str) -> Any:
        return self._part if name == _part.__name__ and module in _OWN_NAMES else _find(module, name)

    def _part(self, name: str) -> Any:
        return self._parts[name]

    def _remember(self, digest: bytes) -> None:
        self._known[digest] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _discovered(self, part: Any) -> str:
        known = self._names.get(id(part))
        if known is not None:
            return known
        if part in _MASTER_KEYS or not (_is_by_reference(part) or _is_rivers_kind(part)):
            raise WrongState(
                f"the model holds {_described(part)}, which cannot be kept as state; "
                "a model may be made of river's classes, classes derived from them, and functions"
            )
        alike = sum(1 for other in self._parts if other.rsplit("#")[0] == _described(part))
        name = f"{_described(part)}#{alike}"
        self._names[id(part)] = name
        self._parts[name] = part
        return name

    def _name(self, part: Any) -> str:
        known = self._names.get(id(part))
        if known is None:
            raise WrongState(f"the model has come to hold {_described(part)}, which cannot be kept as state")
        return known


class _Writer(pickle.Pickler):
    """Pickles a learner; asks for a name for whatever the reader would refuse."""

    def __init__(self, file: io.BytesIO, name: Callable[[Any], str]) -> None:
        super().__init__(file, protocol=5)
        self._name = name

    def reducer_override(self, part: Any) -> Any:
        """Say how a part is written, where pickle's own way is not ours."""
        if isinstance(part, np.ndarray):
            return _array_reduced(part)
        if isinstance(part, np.generic):
            return _number, (part.dtype.str, part.tobytes())
        if isinstance(part, _RandomState):
            return _random_state, (part.get_state(),)
        owner = getattr(part, "__self__", None)
        if isinstance(part, MethodType | BuiltinFunctionType) and not isinstance(owner, ModuleType | None):
            return _method, (owner, part.__name__)
        if isinstance(part, type) or _is_by_reference(part):
            return NotImplemented if _is_known(part) else (_part, (self._name(part),))
        return NotImplemented


class _Reader(pickle.Unpickler):
    """Unpickles a learner, and knows no names but those that learners are made of."""

    def __init__(self, encoded: bytes, find: Callable[[str, str], Any]) -> None:
        super().__init__(io.BytesIO(encoded))
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        """Return what goes by this name, or refuse it."""
        return self._find(module, name)


@lru_cache(maxsize=NAMES_MAX)
def _find(module: str, name: str) -> Any:
    """Return what a learner may be made of under this name, or refuse it."""
    if module in _OWN_NAMES and name in _BUILDERS:
        return _BUILDERS[name]
    if f"{module}.{name}" in _PLAIN:
        return _PLAIN[f"{module}.{name}"]
    if _is_for_learning(module):
        found: Any = import_module(module)
        for step in name.split("."):
            found = getattr(found, step)
        if _is_known(found) and (found.__module__, found.__qualname__) == (module, name):
            return found
    raise pickle.UnpicklingError(f"they name {module}.{name}, which no learner is made of")


def _digest(encoded: bytes) -> bytes:
    return blake2b(encoded, digest_size=16).digest()


def _is_known(part: Any) -> bool:
    """Whether the reader gives out this class or function by its own name."""
    if isinstance(part, FunctionType):
        return (_is_for_learning(part.__module__) and "<" not in part.__qualname__) or (
            part.__module__ == __name__ and part.__name__ in _BUILDERS
        )
    return isinstance(part, type) and (
        _is_for_learning(part.__module__) or _PLAIN.get(f"{part.__module__}.{part.__qualname__}") is part
    )


def _is_for_learning(module: str) -> bool:
    package, _, rest = str(module).partition(".")
    return package == "river" and rest.partition(".")[0] in LEARNING_PACKAGES


def _is_by_reference(part: Any) -> bool:
    """Whether this is a function or the like: it has no state of its own, so all copies of a model can share it."""
    return isinstance(part, _FUNCTIONS) or (callable(part) and type(part).__module__ == "numpy")


def _is_rivers_kind(part: Any) -> bool:
    """Whether this class is derived from one of river's."""
    return isinstance(part, type) and any(_is_for_learning(base.__module__) for base in part.__mro__)


def _described(part: Any) -> str:
    return f"{getattr(part, '__module__', None)}.{getattr(part, '__qualname__', type(part).__name__)}"


def _array_reduced(array: Any) -> Any:
    if array.dtype.kind == "O":
        return _objects, (array.shape, array.ravel().tolist())
    if array.dtype.kind not in _ARRAY_KINDS:
        raise WrongState(f"the model holds a NumPy array of {array.dtype}, which cannot be kept as state")
    order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"  # sums depend on it, a little
    return _array, (array.dtype.str, array.shape, order, array.tobytes(order))


def _checked(dtype: Any) -> Any:
    found = np.dtype(str(dtype))
    if found.kind not in _ARRAY_KINDS:
        raise pickle.UnpicklingError(f"they hold an array of {found}")
    return found


def _array(dtype: str, shape: tuple[int, ...], order: str, content: bytes) -> Any:
    return np.frombuffer(content, _checked(dtype)).reshape(shape, order="F" if order == "F" else "C").copy(order="K")


def _number(dtype: str, content: bytes) -> Any:
    return np.frombuffer(content, _checked(dtype))[0]


def _objects(shape: tuple[int, ...], values: list[Any]) -> Any:
    if not isinstance(values, list):
        raise pickle.UnpicklingError("they hold an array of things that are not listed")
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made.reshape(shape)


def _random_state(state: Any) -> Any:
    if not (isinstance(state, tuple) and len(state) == 5 and 0 <= int(state[2]) <= _MERSENNE_WORDS):
        raise pickle.UnpicklingError("they hold a random generator out of bounds")  # NumPy would read beyond its array
    made = _RandomState(0)
    made.set_state(state)
    return made


def _method(owner: Any, name: str) -> Any:
    """Bind a method that the owner's class has under a plain name; none of a text, which formats any attribute."""
    kind = type(owner)
    found = None if name.startswith("__") or isinstance(owner, type | str) else getattr(kind, name, None)
    if not isinstance(found, FunctionType | MethodDescriptorType) or not (_is_known(kind) or _is_rivers_kind(kind)):
        raise pickle.UnpicklingError(f"they name a method {name} of a {kind.__name__}")
    return found.__get__(owner)


def _part(name: str) -> Any:
    raise AssertionError("a learner's bytes find parts by themselves")


_BUILDERS: Final[dict[str, Any]] = {
    builder.__name__: builder for builder in (_array, _number, _objects, _random_state, _method, _part)
}
# Learners that earlier versions have kept call the builders by the place of this module then.
_OWN_NAMES: Final = frozenset({__name__, "headwater.operators.learner_bytes"})
_CHECKED: Final = frozenset(_BUILDERS.values())  # look themselves at what they are called with
_PLAIN_KINDS: Final = frozenset(_PLAIN.values())
