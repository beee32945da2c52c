"""What operators are given, brought to one form: names of columns, expressions, aggregates.

A name is a text or a plain column, `hw.col("v")`; several are several arguments or one list. Where one thing is taken
and another is given, a sentence says what to write.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import FlowError
from headwater.model.quoting import quoted
from headwater.operators.expressions.sql_text import expr
from headwater.operators.expressions.trees import Column, Reference, checked_depth, col, lit
from headwater.operators.processors.spark_types import arrow_schema
from headwater.operators.windows.window_specs import Aggregate


def column_name(where: str, given: Any) -> str:
    """Return the name of one column."""
    if isinstance(given, Column):
        if isinstance(given.node, Reference) and given.named is None:
            return given.node.name
        raise FlowError(
            f"{where} takes the name of a column, not an expression; compute it before: "
            f'with_column("new", {quoted(given)[1:-1]}), then {where} of "new"'
        )
    if isinstance(given, list | tuple | set) and given:
        first = next(iter(given))
        raise FlowError(f"{where} takes the name of one column, not {quoted(given)}; write {quoted(first)}")
    if isinstance(given, Aggregate):
        raise FlowError(
            f"{where} takes the name of a column, not an aggregate; aggregates are for window(...).agg(...)"
        )
    if not isinstance(given, str) or not given:
        raise FlowError(f'{where} takes the name of a column, as in "sensor", not {quoted(given)}')
    return given


def column_names(where: str, given: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of several columns, given one by one or as a list."""
    listed = _listed(given)
    if not listed:
        raise FlowError(f"{where} needs at least one column")
    return tuple(column_name(where, one) for one in listed)


def _listed(given: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for one in given:
        flat += list(one) if isinstance(one, list | tuple | set | frozenset) else [one]
    return flat


def expression(where: str, given: Any) -> Column:
    """Return an expression: itself, what a text is in SQL, or a value as it is."""
    if isinstance(given, pc.Expression):
        raise FlowError(
            f"{where} takes hw.col(...), not an expression of pyarrow's; write hw.col where it has pc.field"
        )
    if isinstance(given, Aggregate):
        raise FlowError(f"{where} takes an expression of one row, not an aggregate; write .window(...).agg(...)")
    if callable(given) and not isinstance(given, Column):
        raise FlowError(f"{where} takes an expression, not a function; write map(function), or hw.col(...)")
    if isinstance(given, str):
        return expr(given)
    return checked_depth(lit(given))


def named_expressions(where: str, given: Sequence[Any], renamed: Mapping[str, Any]) -> tuple[tuple[str, Column], ...]:
    """Return expressions with the names of the columns that they make; a text is the name of a column."""
    listed = [_picked(where, one) for one in _listed(given)]
    named = {name: _picked(where, one) for name, one in renamed.items()}
    return (*((one.column_name, one) for one in listed), *named.items())


def _picked(where: str, given: Any) -> Column:
    if isinstance(given, str):
        if given == "*":
            raise FlowError(
                f"{where} takes columns by their names; with_columns(...) keeps all of them and adds others"
            )
        return col(given)
    if isinstance(given, Column):
        return checked_depth(given)
    if isinstance(given, Aggregate):
        raise FlowError(f"{where} takes columns, not an aggregate; write .window(...).agg(F.{given.function}(...))")
    if isinstance(given, pc.Expression):
        return expression(where, given)
    raise FlowError(
        f'{where} takes columns, such as "v" or hw.col("v") * 2, not {quoted(given)}; hw.lit(...) is a value'
    )


def schema_of(given: Any) -> pa.Schema | None:
    """Return the columns that were declared: as an Arrow schema, a line of DDL or PySpark's StructType; or None."""
    return None if given is None else arrow_schema(given)


def checked_aggregates(given: Sequence[Any]) -> tuple[Aggregate, ...]:
    """Return aggregates, given one by one or as a list."""
    listed = _listed(given)
    for one in listed:
        if inspect.isfunction(one):
            raise FlowError(f"agg needs aggregates, and {one.__name__} is a function; write F.{_call_of(one)}")
        if isinstance(one, Mapping):
            raise FlowError(f"agg needs aggregates, not a dict; write {_from_dict(one)}")
        if not isinstance(one, Aggregate):
            raise FlowError(f'agg needs aggregates, such as F.count() or F.avg("value"), not {quoted(one)}')
    if not listed:
        raise FlowError('agg needs aggregates, such as F.count() or F.avg("value")')
    return tuple(listed)


def _call_of(function: Any) -> str:
    return f"{function.__name__}()" if function.__name__ == "count" else f'{function.__name__}("v")'


def _from_dict(given: Mapping[Any, Any]) -> str:
    pairs = [(column, functions) for column, functions in given.items()]
    return ", ".join(
        f"F.{one}()" if column == "*" else f'F.{one}("{column}")'
        for column, functions in pairs
        for one in ([functions] if isinstance(functions, str) else functions)
    )


def no_class(where: str, given: Any) -> Any:
    """Return what is given unless it is a class or a function, where what these make is wanted."""
    if isinstance(given, type) or inspect.isfunction(given):
        what = "class" if isinstance(given, type) else "function"
        raise FlowError(f"{where} was given the {what} {given.__name__}; write {given.__name__}(...), with brackets")
    return given
