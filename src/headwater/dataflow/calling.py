"""Calls that do not fit a function's parameters, answered with what it takes instead of Python's TypeError."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, Final, NoReturn, ParamSpec, TypeVar

from headwater.model.errors import FlowError
from headwater.model.quoting import quoted
from headwater.model.suggestions import did_you_mean

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Kind = TypeVar("Kind", bound=type)

# What users of PySpark and pandas call what they pass.
_OTHER_WORDS: Final[Mapping[str, str]] = {
    "inferSchema": "leave it away: types are found from the first rows; or declare them with schema=",
    "sep": "write delimiter=",
    "delim": "write delimiter=",
    "headers": "write header=",
    "dtype": 'write schema="id string, v double"',
    "dtypes": 'write schema="id string, v double"',
    "nullValue": 'write nulls=("",)',
    "na_values": 'write nulls=("",)',
    "maxFilesPerTrigger": "leave it away: rows are taken as they come",
    "rowsPerSecond": "write rate=",
    "windowDuration": "write the size behind the column",
    "slideDuration": "write slide=",
    "startTime": "write start=",
    "gapDuration": "write gap=",
    "outputType": "write schema=",
    "returnType": "write schema=",
    "output_schema": "write schema=",
    "func": "write the function as the first argument",
    "condition": "write the condition as the first argument",
    "subset": 'write the columns one by one, as in dedup("a", "b")',
    "overwrite": 'write mode="overwrite"',
    "append": 'write mode="append"',
    "delayThreshold": "write the delay behind the column",
    "eventTime": "write the column as the first argument",
    "columns": 'write a dict as the first argument, as in rename({"before": "after"})',
}
# How to call what is often called otherwise.
_CALLS: Final[Mapping[str, str]] = {
    "window": 'window(F.window("ts", "1 minute"))',
    "join": 'join(other, on="k", window=F.window("ts", "1 minute"), how="left")',
    "enrich": 'enrich(hw.table("cities.csv"), on="city")',
    "rename": 'rename({"before": "after"})',
    "with_column": 'with_column("new", hw.col("v") * 2)',
    "with_columns": 'with_columns(new=hw.col("v") * 2)',
    "with_watermark": 'with_watermark("ts", "10 seconds")',
    "agg": 'agg(F.avg("v").alias("mean"))',
    "filter": 'filter((hw.col("v") > 0) & (hw.col("k") == "a"))',
    "where": 'where((hw.col("v") > 0) & (hw.col("k") == "a"))',
    "map": "map(function)",
    "flat_map": "flat_map(function)",
    "sink": 'sink(hw.to.csv("rows.csv"))',
    "top_k": 'top_k(3, "v")',
    "limit": "limit(10)",
    "split": 'split(function, into=["hot", "cold"])',
    "process": 'process(processor, "id string, total double")',
    "flow": 'hw.flow("name", stream.sink(hw.to.console()))',
}


def answered(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function that answers a call which does not fit it with a sentence."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(*given: Parameters.args, **named: Parameters.kwargs) -> Result:
        try:
            return function(*given, **named)
        except TypeError:
            if _fits(signature, given, named):
                raise  # it came from inside
        raise FlowError(_answer(function, signature, named))

    return called


def answering(kind: Kind) -> Kind:
    """Let all public methods of a class answer calls that do not fit them."""
    for name, method in list(vars(kind).items()):
        if inspect.isfunction(method) and not name.startswith("_"):
            setattr(kind, name, answered(method))
    return kind


class Uncalled(ModuleType):
    """A module that is called answers with what to write."""

    def __call__(self, *given: Any, **named: Any) -> NoReturn:
        """Say which functions it has."""
        written = ", ".join(f"{self.__name__}.{name}(...)".replace("headwater.connectors", "hw") for name in dir(self))
        raise FlowError(f"{self.__name__} is no function; write one of {written}")


def _fits(signature: inspect.Signature, given: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*given, **named)
    except TypeError:
        return False
    return True


def _answer(function: Callable[..., Any], signature: inspect.Signature, named: Mapping[str, Any]) -> str:
    name = function.__name__
    parameters = {word: one for word, one in signature.parameters.items() if word != "self"}
    written = f"{name}({', '.join(map(_parameter, parameters.values()))})"
    if len(parameters) < len(signature.parameters) or name == "flow":
        written = _CALLS.get(name, written)
    unknown = [word for word in named if word not in parameters]
    if not unknown:
        return f"{name} was called with other arguments than it takes; write {written}"
    word = unknown[0]
    if word in _OTHER_WORDS:
        return f"{name} has no argument {quoted(word)}; {_OTHER_WORDS[word]}"
    return f"{name} has no argument {quoted(word)}{did_you_mean(word, parameters) or f'; write {written}'}"


def _parameter(one: inspect.Parameter) -> str:
    if one.kind is inspect.Parameter.VAR_POSITIONAL:
        return f"*{one.name}"
    if one.kind is inspect.Parameter.VAR_KEYWORD:
        return f"**{one.name}"
    return one.name if one.default is inspect.Parameter.empty else f"{one.name}={one.default!r}"
