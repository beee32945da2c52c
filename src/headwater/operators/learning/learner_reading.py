"""Reading a learner step by step, where another node may have made its bytes up.

Which classes and functions such bytes may name is said in `learner_bytes.py`. Here it is watched what is done with
them: `deque(range(10**11), 1)` names nothing but plain classes, and never ends. So

- only what learners are really written with is called, and with nothing but small numbers and what lies in the bytes;
- what is copied when it is called, and what is hashed as a key, is added up, and may not be much more than the bytes:
  tuples that hold one another twice, sixty deep, take years to hash;
- nothing is done to a class or a function, which all learners of the process share.

It is Python's own reader in Python, which takes three to six times as long as the one in C.
"""

import io
import pickle
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, ClassVar, Final

import numpy as np

WORK_FREE: Final = 1 << 20  # values copied or hashed, whatever the bytes
WORK_PER_BYTE: Final = 16  # beyond it
NUMBER_MAX: Final = 1 << 22  # of a size that something is made with: four million floats are 32 MB
_SIZED: Final = (str, bytes, bytearray, list, tuple, dict, set, frozenset, deque, np.ndarray)
_LIGHT: Final = frozenset({str, float, bool, bytes, type(None)})  # their hash is known, or as soon as they are read

Called = Callable[..., Any]


def _is_bounded(one: object) -> bool:
    return one is None or (isinstance(one, int) and abs(one) <= NUMBER_MAX)


_CONSTRUCTORS: Final[dict[Any, Callable[[tuple[Any, ...]], bool]]] = {
    deque: lambda given: given == () or (given[0] == () and len(given) <= 2 and all(map(_is_bounded, given[1:]))),
    Counter: lambda given: len(given) <= 1 and all(type(one) is dict for one in given),
    OrderedDict: lambda given: not given,
    defaultdict: lambda given: len(given) <= 1 and all(one is None or callable(one) for one in given),
    partial: lambda given: len(given) == 1 and callable(given[0]),
    range: lambda given: len(given) <= 3 and all(map(_is_bounded, given)),
    slice: lambda given: 1 <= len(given) <= 3 and all(map(_is_bounded, given)),
    complex: lambda given: all(isinstance(one, float) for one in given),
    Decimal: lambda given: len(given) == 1 and isinstance(given[0], str) and len(given[0]) <= 4_300,
    **dict.fromkeys(
        (date, datetime, time, timedelta, timezone),
        lambda given: all(isinstance(one, bytes | int | timedelta | timezone) for one in given),
    ),
}


class StepByStep(pickle._Unpickler):
    """Reads a learner that nobody has looked at."""

    stack: list[Any]
    memo: dict[int, Any]
    read: Callable[[int], bytes]
    append: Callable[[Any], None]
    dispatch: ClassVar[dict[int, Callable[..., Any]]] = dict(pickle._Unpickler.dispatch)

    def __init__(
        self, encoded: bytes, find: Callable[[str, str], Any], builders: frozenset[Called], part: Called, plain: Any
    ) -> None:
        """Read these bytes; `find` says what goes by a name, `builders` and `part` check what they are called with."""
        super().__init__(io.BytesIO(encoded))
        self._find, self._builders, self._part, self._plain = find, builders, part, plain
        self._bytes = len(encoded)
        self._left = WORK_FREE + WORK_PER_BYTE * len(encoded)

    def find_class(self, module: str, name: str) -> Any:
        """Return what goes by this name, or refuse it."""
        return self._find(module, name)

    def get_extension(self, code: int) -> None:
        """Refuse what is known by a number."""
        raise pickle.UnpicklingError(f"they name extension {code}, which no learner is made of")

    def _instantiate(self, klass: Any, given: Any) -> None:
        raise pickle.UnpicklingError("they make something in a way in which no learner is made")

    # --- calls --------------------------------------------------------------------------------------------------------

    def _spend(self, work: int) -> None:
        self._left -= work
        if self._left < 0:
            raise pickle.UnpicklingError("they take far more work than so many bytes can")

    def _check_call(self, called: Any, given: Any) -> None:
        if not isinstance(given, tuple):
            raise pickle.UnpicklingError("they call something with what cannot be given")
        for one in given:
            if isinstance(one, _SIZED):
                self._spend(len(one))
        if called == self._part or (isinstance(called, FunctionType) and called in self._builders):
            return
        check = _CONSTRUCTORS.get(called) if isinstance(called, type) else None
        if check is not None:
            is_usual = check(given)
        elif isinstance(called, type) and called in self._plain:
            is_usual = not given
        else:
            is_usual = isinstance(called, type) and all(map(_is_harmless, given))
        if not is_usual:
            raise pickle.UnpicklingError(f"they call {getattr(called, '__qualname__', called)!r} as no learner does")

    def _load_reduce(self) -> None:
        given = self.stack.pop()
        called = self.stack[-1]
        self._check_call(called, given)
        self.stack[-1] = called(*given)

    def _load_newobj(self) -> None:
        given = self.stack.pop()
        kind = self.stack.pop()
        self._check_call(kind, given)
        self.append(kind.__new__(kind, *given))

    def _load_newobj_ex(self) -> None:
        named = self.stack.pop()
        given = self.stack.pop()
        kind = self.stack.pop()
        self._check_call(kind, (*given, *named.values()))
        self.append(kind.__new__(kind, *given, **named))

    def _load_build(self) -> None:
        state, made = self.stack[-1], self.stack[-2]
        if isinstance(made, type | FunctionType | BuiltinFunctionType | MethodType):
            raise pickle.UnpicklingError("they change a class or a function")
        for one in state if isinstance(state, tuple) else (state,):
            if isinstance(one, _SIZED):
                self._spend(len(one))
        if isinstance(made, partial):
            _, given, named, _ = state
            if not all(map(_is_harmless, (*given, *(named or {}).values()))):
                raise pickle.UnpicklingError("they prepare a call as no learner does")
        pickle._Unpickler.load_build(self)  # type: ignore[attr-defined]

    # --- keys ---------------------------------------------------------------------------------------------------------

    def _check_keys(self, keys: Iterable[Any]) -> None:
        for key in keys:
            if type(key) not in _LIGHT:
                self._weigh(key)

    def _weigh(self, key: Any) -> None:
        """Spend what it takes to hash a key: what it holds is hashed as often as it stands in it."""
        waiting = [key]
        while waiting:
            one = waiting.pop()
            self._spend(1)
            if isinstance(one, int):
                self._spend(one.bit_length() >> 6)
            elif isinstance(one, tuple | frozenset):
                self._spend(len(one))
                waiting.extend(one)
            elif isinstance(one, partial | MethodType | slice | range):
                raise pickle.UnpicklingError("they have a key that no learner has")

    def _load_setitem(self) -> None:
        self._check_keys(self.stack[-2:-1])
        pickle._Unpickler.load_setitem(self)  # type: ignore[attr-defined]

    def _load_setitems(self) -> None:
        self._check_keys(self.stack[::2])
        pickle._Unpickler.load_setitems(self)  # type: ignore[attr-defined]

    def _load_dict(self) -> None:
        self._check_keys(self.stack[::2])
        pickle._Unpickler.load_dict(self)  # type: ignore[attr-defined]

    def _load_additems(self) -> None:
        self._check_keys(self.stack)
        pickle._Unpickler.load_additems(self)  # type: ignore[attr-defined]

    def _load_frozenset(self) -> None:
        self._check_keys(self.stack)
        pickle._Unpickler.load_frozenset(self)  # type: ignore[attr-defined]

    def _load_bytearray8(self) -> None:
        (size,) = np.frombuffer(self.read(8), "<u8").tolist()
        if size > self._bytes:
            raise pickle.UnpicklingError(f"they say that {size} bytes follow")
        self.append(bytearray(self.read(size)))

    def _load_long_binput(self) -> None:
        (place,) = np.frombuffer(self.read(4), "<u4").tolist()
        if place > self._bytes:  # C's reader keeps room for all places before it
            raise pickle.UnpicklingError(f"they remember something in place {place}")
        self.memo[place] = self.stack[-1]

    for _code, _load in (
        (pickle.LONG_BINPUT, _load_long_binput),
        (pickle.REDUCE, _load_reduce),
        (pickle.NEWOBJ, _load_newobj),
        (pickle.NEWOBJ_EX, _load_newobj_ex),
        (pickle.BUILD, _load_build),
        (pickle.SETITEM, _load_setitem),
        (pickle.SETITEMS, _load_setitems),
        (pickle.DICT, _load_dict),
        (pickle.ADDITEMS, _load_additems),
        (pickle.FROZENSET, _load_frozenset),
        (pickle.BYTEARRAY8, _load_bytearray8),
    ):
        dispatch[_code[0]] = _load


def _is_harmless(given: Any) -> bool:
    """Whether something may be made with this: no number that stands for a size of any kind, and nothing endless."""
    if isinstance(given, int):
        return abs(given) <= NUMBER_MAX
    if isinstance(given, tuple | list):
        return len(given) <= WORK_FREE and all(not isinstance(one, int) or abs(one) <= NUMBER_MAX for one in given)
    return not isinstance(given, range)
