"""Which form a function takes whose parameter has no annotation: found in what it does, without calling it.

A function without an annotation takes a record batch. But `lambda row: row["celsius"] > 20` can only mean a row: a
column of a batch has no order. So the function's code is read: what it does with its first parameter is something
that only a row (a dict) can do, or something that only a batch can, or could be either. Where it could be either it
stays a batch, as documented; where one part of it needs a row and another part a batch, it is refused.
"""

import builtins
import datetime as dt
import dis
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

import pyarrow as pa

from headwater.model.errors import FlowError
from headwater.model.suggestions import did_you_mean

_DICT: Final = frozenset(dir(dict)) - frozenset(dir(pa.RecordBatch))  # get, items, keys, values, ...
_BATCH: Final = frozenset(dir(pa.RecordBatch))
_COLUMN: Final = frozenset(name for kind in (pa.Array, pa.ChunkedArray, pa.Scalar) for name in dir(kind))
_VALUE: Final = frozenset(
    name for kind in (str, int, float, bytes, Decimal, dt.datetime, dt.timedelta, list, dict) for name in dir(kind)
)
_OF_COLUMNS: Final = _COLUMN - _VALUE - frozenset(dir(object))  # to_pylist, is_null, as_py, cast, ...
_VECTORISED: Final = frozenset({"pyarrow", "pandas", "numpy", "polars", "scipy", "sklearn", "torch", "xarray"})
_SCALAR_CALLS: Final = frozenset(
    {"abs", "bool", "chr", "divmod", "float", "format", "hash", "int", "isinstance", "len", "ord", "pow", "repr"}
) | frozenset({"round", "str", "type", "complex", "bytes", "dict"})
_PLAIN: Final = (
    *(bool, int, float, complex, str, bytes, type(None), Decimal, dt.date, dt.time, dt.timedelta, dt.tzinfo),
    *(tuple, list, dict, set, frozenset, range, re.Pattern),
)
_WORKING: Final = (
    frozenset({"COMPARE_OP", "CONTAINS_OP", "IS_OP", "BINARY_OP", "UNARY_NOT", "UNARY_NEGATIVE", "FORMAT_VALUE"})
    | frozenset({"FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "BUILD_STRING", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"})
    | {
        f"POP_JUMP{direction}_IF_{truth}"
        for direction in ("", "_FORWARD")
        for truth in ("TRUE", "FALSE", "NONE", "NOT_NONE")
    }
)
_LOOPS: Final = frozenset({"GET_ITER", "FOR_ITER"})
_SUBSCRIPT: Final = "[]"
_STORE_AND_LOAD: Final = "STORE_FAST_LOAD_FAST"


class Undecidable(FlowError):
    """A function without an annotation that needs a row in one place and a batch in another."""


@dataclass(slots=True)
class _Findings:
    """What a function does."""

    subscripts: int = 0  # of the parameter, by a constant text
    row_only: list[str] = field(default_factory=list)  # what only a dict can
    batch_only: list[str] = field(default_factory=list)  # what only a batch and its columns can
    works: bool = False  # with values, by Python's own operators
    unknown: bool = False  # calls something that could do either
    loops: bool = False
    reassigned: bool = False
    attribute: str | None = None  # of the parameter, which neither a dict nor a batch has


def takes_rows(function: Callable[..., Any]) -> bool:
    """Whether a function without an annotation takes a row; raises FlowError if it says both."""
    if not isinstance(function, FunctionType) or function.__code__.co_argcount == 0:
        return False
    found = _look(function)
    if found.attribute is not None:
        name = found.attribute
        known = sorted(one for one in _BATCH if not one.startswith("_"))
        raise FlowError(
            f"a row is a dict: write row[{name!r}] where the function has .{name}; it is no attribute of a "
            f"RecordBatch either{did_you_mean(name, known)}"
        )
    if found.row_only:
        return True
    if found.batch_only or not found.subscripts or found.reassigned:
        return False
    if not found.works:
        return False
    if found.unknown or found.loops:
        raise Undecidable(
            "cannot tell whether the function takes a row or a whole batch: annotate its parameter, as in "
            'def f(row: hw.Row), or write form="rows" (form="arrow" for a pyarrow.RecordBatch)'
        )
    return True


def _look(function: FunctionType) -> _Findings:
    code = function.__code__
    found = _Findings()
    instructions = [
        one for one in dis.get_instructions(code) if one.opname not in ("RESUME", "CACHE", "NOP", "EXTENDED_ARG")
    ]
    for place, one in enumerate(instructions):
        _look_at(one, instructions[place + 1 : place + 4], code.co_varnames[0], function, found)
    for inner in _inner(code):
        found.loops = True
        if any(name in _OF_COLUMNS for name in inner.co_names):
            found.batch_only.append("a comprehension")
        if any(one.opname in _WORKING and not _is_subscript(one) for one in dis.get_instructions(inner)):
            found.works = True
        _look_at_names(inner, function, found)
    return found


def _look_at(
    one: dis.Instruction, behind: Sequence[dis.Instruction], parameter: str, function: FunctionType, found: _Findings
) -> None:
    name = one.opname
    if name.startswith("STORE_FAST") and parameter in _stored(one):
        found.reassigned = True
    elif _loads(one, parameter):
        _look_at_use(behind, found)
    elif name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLOSURE"):
        _look_at_global(str(one.argval), function, found)
    elif name in ("LOAD_ATTR", "LOAD_METHOD"):
        if one.argval in _OF_COLUMNS:
            found.batch_only.append(f".{one.argval}")
        elif one.argval in _VALUE and one.argval not in _COLUMN:
            found.works = True
    elif name in _LOOPS:
        found.loops = True
    elif name in _WORKING and not _is_subscript(one):
        found.works = True


def _look_at_use(behind: Sequence[dis.Instruction], found: _Findings) -> None:
    """Look at what is done with the parameter."""
    names = [one.opname for one in behind]
    if not behind:
        return
    first = behind[0]
    if names[0] in ("LOAD_ATTR", "LOAD_METHOD"):
        if first.argval in _DICT:
            found.row_only.append(f".{first.argval}()")
        elif first.argval in _BATCH:
            found.batch_only.append(f".{first.argval}")
        else:
            found.attribute = found.attribute or str(first.argval)
    elif names[0] in ("DICT_UPDATE", "DICT_MERGE"):
        found.row_only.append("**")
    elif len(behind) > 1 and names[0] == "LOAD_CONST" and isinstance(first.argval, str):
        if names[1] in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            found.row_only.append("an assignment")
        elif _is_subscript(behind[1]):
            found.subscripts += 1
            if len(behind) > 2 and names[2] in ("LOAD_ATTR", "LOAD_METHOD") and behind[2].argval in _VALUE - _COLUMN:
                found.row_only.append(f"[{first.argval!r}].{behind[2].argval}")  # which no column has


def _look_at_global(name: str, function: FunctionType, found: _Findings) -> None:
    value = _value_of(name, function)
    if _is_vectorised(value):
        found.batch_only.append(name)
    elif not _is_harmless(name, value):
        found.unknown = True


def _look_at_names(code: CodeType, function: FunctionType, found: _Findings) -> None:
    for name in code.co_names:
        value = _value_of(name, function)
        if value is not _NOT_THERE and _is_vectorised(value):
            found.batch_only.append(name)


_NOT_THERE: Final = object()


def _value_of(name: str, function: FunctionType) -> Any:
    """Return what a name stands for in a function now; a name may also get its value later."""
    if name in function.__code__.co_freevars and function.__closure__ is not None:
        cell = function.__closure__[function.__code__.co_freevars.index(name)]
        try:
            return cell.cell_contents
        except ValueError:  # not filled yet
            return _NOT_THERE
    if name in function.__globals__:
        return function.__globals__[name]
    return getattr(builtins, name, _NOT_THERE)


def _is_vectorised(value: Any) -> bool:
    origin = (
        value.__name__
        if isinstance(value, ModuleType)
        else getattr(value, "__module__", None) or type(value).__module__
    )
    return isinstance(origin, str) and origin.partition(".")[0] in _VECTORISED


def _is_harmless(name: str, value: Any) -> bool:
    """Whether nothing that is done with it can make something else of a column than Python's operators do."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in sys.stdlib_module_names
    if isinstance(value, _PLAIN):
        return True
    if getattr(builtins, name, _NOT_THERE) is value:
        return name in _SCALAR_CALLS or (isinstance(value, type) and issubclass(value, BaseException))
    origin = getattr(value, "__module__", None)
    if not isinstance(origin, str) or not isinstance(value, BuiltinFunctionType | FunctionType | type):
        return False
    return bool(origin != "__main__" and origin.partition(".")[0] in sys.stdlib_module_names)


def _loads(one: dis.Instruction, parameter: str) -> bool:
    """Whether the parameter lies on top of the stack afterwards."""
    if not one.opname.startswith(("LOAD_FAST", "LOAD_DEREF", _STORE_AND_LOAD)):
        return False
    return bool(_names_of(one)[-1] == parameter)


def _stored(one: dis.Instruction) -> tuple[Any, ...]:
    """Return the names that an instruction gives a value; some of newer Pythons load another behind it."""
    return _names_of(one)[:1] if one.opname == _STORE_AND_LOAD else _names_of(one)


def _names_of(one: dis.Instruction) -> tuple[Any, ...]:
    return one.argval if isinstance(one.argval, tuple) else (one.argval,)


def _is_subscript(one: dis.Instruction) -> bool:
    return one.opname == "BINARY_SUBSCR" or (one.opname == "BINARY_OP" and one.argrepr == _SUBSCRIPT)


def _inner(code: CodeType) -> Iterator[CodeType]:
    """Return the code of functions and comprehensions inside."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inner(constant)
