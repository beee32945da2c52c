"""Column expressions: what is to be computed from the columns of a row, as frozen data.

    hw.when(hw.col("celsius") > 30, "hot").otherwise(hw.col("mood"))

An expression is a tree of references, constants and calls. It computes nothing itself and knows no types: `evaluating`
fits it to the columns of rows, where it is refused if its types do not go together. The names are PySpark's, and so is
what they mean, unless `docs/expressions.md` says otherwise.
"""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa

from headwater.model.errors import FlowError, UnknownName
from headwater.model.quoting import quoted
from headwater.operators.processors.spark_types import arrow_type, type_name

DEPTH_MAX: Final = 200  # a sum of as many columns; Python's own recursion would end at some 300
_INFIX: Final = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "remainder": "%",
    "equal": "=",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "and": "AND",
    "or": "OR",
}
_POSTFIX: Final = {"is_null": "IS NULL", "is_valid": "IS NOT NULL"}


@dataclass(frozen=True)
class Reference:
    """A column, or with dots the field of a struct."""

    name: str


@dataclass(frozen=True)
class Constant:
    """The same value for every row."""

    value: Any


@dataclass(frozen=True)
class Call:
    """A function of other expressions; `options` are the same for every row."""

    function: str
    given: tuple["Node", ...]
    options: tuple[Any, ...] = ()


Node = Reference | Constant | Call


@dataclass(frozen=True, eq=False, repr=False)
class Column:
    """An expression, under the name of the column that it makes: `hw.col("v") * 2`, `hw.lit(1)`, `F.upper("name")`."""

    node: Node
    named: str | None = None

    @property
    def column_name(self) -> str:
        """What the column is called: its alias, that of the column it is taken from, or how it is written."""
        if self.named is not None:
            return self.named
        node = self.node
        while isinstance(node, Call) and node.function == "cast":  # which keeps the name, as in Spark
            node = node.given[0]
        return node.name.rsplit(".")[-1] if isinstance(node, Reference) else written(self.node)

    def __repr__(self) -> str:
        """Return it as it is written in SQL."""
        return (
            f"Column<{written(self.node)}>" if self.named is None else f"Column<{written(self.node)} AS {self.named}>"
        )

    def alias(self, name: Any) -> "Column":
        """Return the same under another name."""
        if not isinstance(name, str) or not name:
            raise FlowError(f"alias takes the name of the new column, not {quoted(name)}")
        return Column(self.node, name)

    def cast(self, kind: Any) -> "Column":
        """Return the value as another type: `"int"`, `"timestamp"`, a pyarrow type, or a type of PySpark's."""
        return Column(Call("cast", (self.node,), (arrow_type(kind),)), self.named)

    def is_null(self) -> "Column":
        """Whether there is no value."""
        return _call("is_null", self)

    def is_valid(self) -> "Column":
        """Whether there is a value."""
        return _call("is_valid", self)

    def is_nan(self) -> "Column":
        """Whether the value is NaN; false for null."""
        return _call("is_nan", self)

    def isin(self, *values: Any) -> "Column":
        """Whether the value is one of these; null for null."""
        listed = values[0] if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset) else values
        given = sorted(listed, key=repr) if isinstance(listed, set | frozenset) else list(listed)
        for value in given:
            if isinstance(value, Column):
                raise FlowError("isin takes values, not columns; compare columns with == and |")
        return Column(Call("isin", (self.node,), (tuple(given),)))

    def between(self, lower: Any, upper: Any) -> "Column":
        """Whether the value lies between two others, both included."""
        return _call("and", self >= lower, self <= upper)

    def like(self, pattern: str) -> "Column":
        """Whether a text matches a pattern in which `%` is any text and `_` any character."""
        return Column(Call("like", (self.node,), (_text("like", pattern),)))

    def rlike(self, pattern: str) -> "Column":
        """Whether a text has a part that matches a regular expression."""
        return Column(Call("rlike", (self.node,), (_text("rlike", pattern),)))

    def contains(self, text: str) -> "Column":
        """Whether a text has this part."""
        return Column(Call("contains", (self.node,), (_text("contains", text),)))

    def startswith(self, text: str) -> "Column":
        """Whether a text begins like this."""
        return Column(Call("startswith", (self.node,), (_text("startswith", text),)))

    def endswith(self, text: str) -> "Column":
        """Whether a text ends like this."""
        return Column(Call("endswith", (self.node,), (_text("endswith", text),)))

    def substr(self, start: int, length: int) -> "Column":
        """A part of a text; the first character is number 1, and negative numbers count from the end."""
        return Column(Call("substring", (self.node,), (start, length)))

    def __getitem__(self, part: Any) -> "Column":
        """Return a field of a struct by its name, or an item of a list by its number, from 0."""
        if isinstance(part, str):
            return Column(Call("field", (self.node,), (part,)), part)
        if type(part) is int:
            return Column(Call("item", (self.node,), (part,)))
        raise FlowError(f"a column's part is the name of a field or the number of an item, not {quoted(part)}")

    def __add__(self, other: Any) -> "Column":
        """Add numbers or spans of time, or join texts."""
        return _call("add", self, other)

    def __radd__(self, other: Any) -> "Column":
        """Add from the left."""
        return _call("add", other, self)

    def __sub__(self, other: Any) -> "Column":
        """Subtract."""
        return _call("subtract", self, other)

    def __rsub__(self, other: Any) -> "Column":
        """Subtract from another."""
        return _call("subtract", other, self)

    def __mul__(self, other: Any) -> "Column":
        """Multiply."""
        return _call("multiply", self, other)

    def __rmul__(self, other: Any) -> "Column":
        """Multiply from the left."""
        return _call("multiply", other, self)

    def __truediv__(self, other: Any) -> "Column":
        """Divide; of whole numbers too, this is a fraction."""
        return _call("divide", self, other)

    def __rtruediv__(self, other: Any) -> "Column":
        """Divide another by this."""
        return _call("divide", other, self)

    def __mod__(self, other: Any) -> "Column":
        """What a division leaves, with the sign of what is divided, as in Spark."""
        return _call("remainder", self, other)

    def __rmod__(self, other: Any) -> "Column":
        """What the division of another leaves."""
        return _call("remainder", other, self)

    def __pow__(self, other: Any) -> "Column":
        """Raise to a power."""
        return _call("pow", self, other)

    def __rpow__(self, other: Any) -> "Column":
        """Raise another to this power."""
        return _call("pow", other, self)

    def __floordiv__(self, other: Any) -> "Column":
        """Refuse what SQL has not."""
        raise FlowError("a column has no //; write F.floor(a / b) for whole numbers")

    __rfloordiv__ = __floordiv__

    def __xor__(self, other: Any) -> "Column":
        """Refuse what SQL has not."""
        raise FlowError("a column has no ^; write a != b for truths, and a ** b for powers")

    __rxor__ = __xor__

    def __round__(self, digits: int = 0) -> "Column":
        """Round to so many digits, as F.round does."""
        return Column(Call("round", (self.node,), (digits,)))

    def __abs__(self) -> "Column":
        """Return the number without its sign."""
        return _call("abs", self)

    def __int__(self) -> NoReturn:
        """Refuse to be one number."""
        raise FlowError('a column is no single number; write column.cast("int")')

    def __float__(self) -> NoReturn:
        """Refuse to be one number."""
        raise FlowError('a column is no single number; write column.cast("double")')

    def __len__(self) -> NoReturn:
        """Refuse to have a length."""
        raise FlowError("a column has no length; write F.length(column) for that of texts, F.size(column) of lists")

    def __neg__(self) -> "Column":
        """Return the negative."""
        return _call("negate", self)

    def __eq__(self, other: object) -> "Column":  # type: ignore[override]
        """Whether both are equal; null if one is null."""
        return _compared("equal", self, other)

    def __ne__(self, other: object) -> "Column":  # type: ignore[override]
        """Whether they differ; null if one is null."""
        return _compared("not_equal", self, other)

    def __lt__(self, other: Any) -> "Column":
        """Whether this is smaller."""
        return _compared("less", self, other)

    def __le__(self, other: Any) -> "Column":
        """Whether this is not larger."""
        return _compared("less_equal", self, other)

    def __gt__(self, other: Any) -> "Column":
        """Whether this is larger."""
        return _compared("greater", self, other)

    def __ge__(self, other: Any) -> "Column":
        """Whether this is not smaller."""
        return _compared("greater_equal", self, other)

    def __and__(self, other: Any) -> "Column":
        """Whether both are true."""
        return _call("and", self, other)

    def __rand__(self, other: Any) -> "Column":
        """Whether both are true."""
        return _call("and", other, self)

    def __or__(self, other: Any) -> "Column":
        """Whether one of them is true."""
        return _call("or", self, other)

    def __ror__(self, other: Any) -> "Column":
        """Whether one of them is true."""
        return _call("or", other, self)

    def __invert__(self) -> "Column":
        """Whether it is false."""
        return _call("not", self)

    def __hash__(self) -> NoReturn:
        """Refuse to be looked for: == makes an expression, so nothing could be found by a hash."""
        raise FlowError(
            "a column cannot be in a set or be the key of a dict; write its name: "
            'with_columns({"name": column}), select([column])'
        )

    def __bool__(self) -> NoReturn:
        """Refuse to be true or false: that is known for each row only."""
        raise FlowError(
            f"{written(self.node)} is true or false for each row, not here; for and, or, not write &, |, ~ with "
            'brackets around each side, as in (hw.col("a") > 1) & (hw.col("b") < 2); for 1 < x < 3 write '
            "x.between(1, 3)"
        )

    def __contains__(self, item: Any) -> NoReturn:
        """Refuse `in`."""
        raise FlowError(
            'in is not for columns; write hw.col("a").isin("x", "y"), or hw.col("a").contains("x") of texts'
        )

    def __iter__(self) -> Iterator[Any]:
        """Refuse to be gone through: there are no rows here."""
        raise FlowError("a column has no rows while the flow is written; they come when it runs")

    def __getattr__(self, name: str) -> NoReturn:
        """Say what to write instead of a name that columns do not have."""
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnknownName("a column", name, NEAR_COLUMN.get(name), _methods(Column))


@dataclass(frozen=True, eq=False, repr=False)
class Case(Column):
    """`when(...)`, to which further cases can be added; null where none is true."""

    def when(self, condition: Any, value: Any) -> "Case":
        """Add a case, for rows for which none before it is true."""
        assert isinstance(self.node, Call)
        return Case(Call("case", (*self.node.given, _condition(condition), as_node(value))))

    def otherwise(self, value: Any) -> Column:
        """Say what it is for all other rows."""
        assert isinstance(self.node, Call)
        return Column(Call("case", (*self.node.given, as_node(value))))


NEAR_COLUMN: Final = {
    "isNull": "is_null()",
    "isnull": "is_null()",
    "isna": "is_null()",
    "isNotNull": "is_valid()",
    "notnull": "is_valid()",
    "notna": "is_valid()",
    "is_not_null": "is_valid()",
    "isNaN": "is_nan()",
    "isnan": "is_nan()",
    "is_in": "isin(...)",
    "is_between": "between(lower, upper)",
    "astype": 'cast("int")',
    "to": 'cast("int")',
    "try_cast": 'cast("int"), with on_error="dead-letter" for rows that have no such value',
    "name": 'alias("name")',
    "getField": '["field"]',
    "getItem": "[0]",
    "ilike": 'F.lower(column).like("...")',
    "str": "a function of headwater.functions, such as F.upper(column)",
    "dt": "a function of headwater.functions, such as F.hour(column)",
    "eqNullSafe": "(a == b) | (a.is_null() & b.is_null())",
    "otherwise": "hw.when(condition, value).otherwise(value)",
    "when": "hw.when(condition, value).otherwise(value)",
    "asc": "nothing: a stream has no end, so it cannot be sorted; top_k keeps the largest rows",
    "desc": "nothing: a stream has no end, so it cannot be sorted; top_k keeps the largest rows",
    "over": 'key_by("k").window(F.window("ts", "1 minute")).agg(...)',
    "apply": "map(function) on the stream",
    "map": "map(function) on the stream",
    "sum": 'key_by("k").window(...).agg(F.sum("v"))',
    "mean": 'key_by("k").window(...).agg(F.avg("v"))',
    "max": 'key_by("k").window(...).agg(F.max("v"))',
    "min": 'key_by("k").window(...).agg(F.min("v"))',
    "fillna": "F.coalesce(column, hw.lit(value))",
    "fill_null": "F.coalesce(column, hw.lit(value))",
    "round": "F.round(column, 2)",
    "abs": "F.abs(column)",
    "lower": "F.lower(column)",
    "upper": "F.upper(column)",
}


def col(name: Any) -> Column:
    """Return a column of the rows by its name; `window.start` is a field of the struct `window`."""
    if isinstance(name, Column):
        return name
    if not isinstance(name, str) or not name:
        raise FlowError(f'col takes the name of a column, as in hw.col("celsius"), not {quoted(name)}')
    if name == "*":
        raise FlowError('a column has one name, not "*"; with_column(...) keeps all columns and adds one')
    return Column(Reference(name))


def lit(value: Any) -> Column:
    """Return the same value for every row."""
    return value if isinstance(value, Column) else Column(as_node(value))


def when(condition: Any, value: Any) -> Case:
    """Return a value where a condition is true; `.when(...)` adds cases, `.otherwise(...)` says what else."""
    return Case(Call("case", (_condition(condition), as_node(value))))


def as_node(value: Any) -> Node:
    """Return what stands in an expression: that of a column, or a value as a constant."""
    if isinstance(value, Column):
        return value.node
    if isinstance(value, np.generic):
        value = value.item()
    if value is not None and not isinstance(
        value, bool | int | float | str | bytes | Decimal | dt.date | dt.timedelta | pa.Scalar
    ):
        raise FlowError(
            f"{quoted(value)} cannot stand in an expression; take a number, a text, a time, None, or a column: "
            'hw.col("name")'
        )
    return Constant(value)


def written(node: Node) -> str:
    """Return an expression as SQL has it, for messages and for the names of columns."""
    match node:
        case Reference(name):
            return name
        case Constant(value):
            return _value_written(value)
        case Call("case", given):
            return _case_written(given)
        case Call("cast", (one,), (kind,)):
            return f"CAST({written(one)} AS {type_name(kind).upper()})"
        case Call("isin", (one,), (values,)):
            return f"({written(one)} IN ({', '.join(map(_value_written, values))}))"
        case Call("field" | "item", (one,), (part,)):
            return f"{written(one)}[{part}]"
        case Call(function, (one, other)) if function in _INFIX:
            return f"({written(one)} {_INFIX[function]} {written(other)})"
        case Call(function, (one,)) if function in _POSTFIX:
            return f"({written(one)} {_POSTFIX[function]})"
        case Call("not", (one,)):
            return f"(NOT {written(one)})"
        case Call("negate", (one,)):
            return f"(- {written(one)})"
        case Call(function, given, options):
            return f"{function}({', '.join([*map(written, given), *map(_option_written, options)])})"


def references(node: Node) -> Iterator[str]:
    """Return the names of the columns that an expression reads."""
    if isinstance(node, Reference):
        yield node.name
    elif isinstance(node, Call):
        for one in node.given:
            yield from references(one)


def checked_depth(column: Column) -> Column:
    """Return an expression in which no more calls lie inside one another than can be worked through."""
    level: list[Node] = [column.node]
    for _ in range(DEPTH_MAX):
        level = [inner for one in level if isinstance(one, Call) for inner in one.given]
        if not level:
            return column
    raise FlowError(f"an expression has more than {DEPTH_MAX} calls inside one another; write map(function) instead")


def _call(function: str, *given: Any) -> Column:
    return Column(Call(function, tuple(map(as_node, given))))


def _compared(function: str, one: Column, other: Any) -> Column:
    if other is None:
        raise FlowError(
            f"nothing is equal to None in SQL, so {written(one.node)} compared with it is never true; "
            "write .is_null() or .is_valid()"
        )
    return _call(function, one, other)


def _condition(given: Any) -> Node:
    if not isinstance(given, Column | bool):
        raise FlowError(f'when takes a condition, such as hw.col("celsius") > 30, not {quoted(given)}')
    return as_node(given)


def _text(function: str, given: Any) -> str:
    if not isinstance(given, str):
        raise FlowError(f"{function} takes a text, not {quoted(given)}")
    return given


def _value_written(value: Any) -> str:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else str(value)


def _option_written(option: Any) -> str:
    return quoted(option) if isinstance(option, str) else str(option)


def _case_written(given: tuple[Node, ...]) -> str:
    cases = "".join(
        f" WHEN {written(condition)} THEN {written(value)}"
        for condition, value in zip(given[: len(given) // 2 * 2 : 2], given[1::2], strict=True)
    )
    return f"CASE{cases} ELSE {written(given[-1])} END" if len(given) % 2 else f"CASE{cases} END"


def _methods(kind: type) -> list[str]:
    return [name for name in dir(kind) if not name.startswith("_")]
