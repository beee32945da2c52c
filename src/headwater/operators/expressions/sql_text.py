"""Reading an expression from text, as SQL has it: `v > 0 AND name LIKE 'a%'`.

The grammar is a part of Spark's: comparisons, AND, OR, NOT, arithmetic, `||`, BETWEEN, IN, LIKE, RLIKE, IS NULL, CASE,
CAST, INTERVAL, the functions of `scalar_functions`, and at the end AS. What is read becomes the same tree as an
expression written in Python. The text may be of any origin, so its length is bounded, and how deep it nests.
"""

import datetime as dt
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from headwater.model.errors import FlowError
from headwater.model.quoting import brief, quoted
from headwater.model.suggestions import did_you_mean
from headwater.operators.expressions import scalar_functions
from headwater.operators.expressions.trees import Column, Constant, checked_depth, col, lit, when
from headwater.operators.processors.spark_types import arrow_type

TEXT_CHARS_MAX: Final = 10_000  # a page of conditions
NESTING_MAX: Final = 50  # brackets inside brackets; each costs a dozen calls of Python

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<name>[^\W\d]\w*|`(?:[^`]|``)+`)
    |(?P<sign><=>|<>|!=|==|<=|>=|\|\||[-+*/%<>=(),.\[\]]))""",
    re.VERBOSE | re.DOTALL,
)
_COMPARISONS: Final[Mapping[str, Callable[[Column, Column], Column]]] = {
    "=": lambda one, other: one == other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<>": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
_UNITS: Final = {
    **dict.fromkeys(("microsecond", "microseconds"), dt.timedelta(microseconds=1)),
    **dict.fromkeys(("millisecond", "milliseconds"), dt.timedelta(milliseconds=1)),
    **dict.fromkeys(("second", "seconds"), dt.timedelta(seconds=1)),
    **dict.fromkeys(("minute", "minutes"), dt.timedelta(minutes=1)),
    **dict.fromkeys(("hour", "hours"), dt.timedelta(hours=1)),
    **dict.fromkeys(("day", "days"), dt.timedelta(days=1)),
    **dict.fromkeys(("week", "weeks"), dt.timedelta(weeks=1)),
}
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "%": "\\%", "_": "\\_"}
_OTHER_NAMES: Final = {  # of functions, in SQL
    "lcase": "lower",
    "ucase": "upper",
    "len": "length",
    "char_length": "length",
    "substr": "substring",
    "ceiling": "ceil",
    "power": "pow",
    "ln": "log",
    "ifnull": "nvl",
    "day": "dayofmonth",
    "sign": "signum",
}
_AGGREGATES: Final = frozenset({"count", "sum", "avg", "mean", "min", "max", "first", "last", "stddev", "variance"})
_CLAUSES: Final = frozenset({"select", "from", "where", "group", "order", "join", "having", "limit"})


def expr(text: Any) -> Column:
    """Return the expression that a text is in SQL: `hw.expr("celsius * 1.8 + 32 AS fahrenheit")`."""
    if not isinstance(text, str):
        raise FlowError(f'expr takes a text, such as "celsius > 20", not {quoted(text)}')
    return checked_depth(_Reader(text).whole())


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def word(self) -> str:
        """The token in lower case, as far as it is a word of SQL."""
        return self.text.lower() if self.kind in ("name", "sign") else ""


_END: Final = _Token("end", "")


class _Reader:
    """One text and how far it has been read."""

    def __init__(self, text: str) -> None:
        self._text = text
        if len(text) > TEXT_CHARS_MAX:
            raise FlowError(
                f"an expression of {len(text):,} characters is too long; at most {TEXT_CHARS_MAX:,} are read"
            )
        self._tokens = list(self._cut())
        self._at = 0
        self._nested = 0

    def whole(self) -> Column:
        """Read all of the text: an expression, and perhaps its name."""
        made = self._any()
        if self._takes("as") or (self._peek().kind == "name" and self._peek().word not in _CLAUSES):
            made = made.alias(self._name())
        if self._peek() is not _END:
            raise self._unreadable(f"{quoted(self._peek().text)} is not expected here")
        return made

    def _cut(self) -> Iterator[_Token]:
        at, end = 0, len(self._text.rstrip())
        while at < end:
            found = _TOKEN.match(self._text, at)
            if found is None:
                rest = self._text[at:].lstrip()
                raise self._unreadable(f"{quoted(rest[:1])} is not expected in it")
            kind = found.lastgroup
            assert kind is not None
            yield _Token(kind, found[kind])
            at = found.end()

    def _any(self) -> Column:
        """Read an expression; the weakest of all binds OR."""
        self._nested += 1
        if self._nested > NESTING_MAX:
            raise self._unreadable(f"it has more than {NESTING_MAX} expressions inside one another")
        made = self._both()
        while self._takes("or"):
            made = made | self._both()
        self._nested -= 1
        return made

    def _both(self) -> Column:
        made = self._negated()
        while self._takes("and"):
            made = made & self._negated()
        return made

    def _negated(self) -> Column:
        count = 0
        while self._takes("not"):
            count += 1
        made = self._predicate()
        return ~made if count % 2 else made

    def _predicate(self) -> Column:
        one = self._sum()
        sign = self._peek().text
        if sign in _COMPARISONS and self._peek().kind == "sign":
            self._take()
            return self._compared(sign, one, self._sum())
        if self._takes("is"):
            is_negated = self._takes("not")
            self._must("null")
            return one.is_valid() if is_negated else one.is_null()
        is_negated = self._takes("not")
        made = self._test(one)
        if made is None:
            if is_negated:
                raise self._unreadable("behind NOT it needs IN, BETWEEN, LIKE or RLIKE")
            return one
        return ~made if is_negated else made

    def _compared(self, sign: str, one: Column, other: Column) -> Column:
        for side in (one, other):
            if side.node == Constant(None):
                raise self._unreadable("nothing is equal to NULL; write IS NULL or IS NOT NULL")
        return _COMPARISONS[sign](one, other)

    def _test(self, one: Column) -> Column | None:
        """Read what a value is tested by, if anything is."""
        if self._takes("between"):
            lower = self._sum()
            self._must("and")
            return one.between(lower, self._sum())
        if self._takes("in"):
            self._must("(")
            return one.isin([self._constant("IN", value) for value in self._list()])
        if self._takes("like"):
            return one.like(self._constant("LIKE", self._sum()))
        if self._takes("rlike") or self._takes("regexp"):
            return one.rlike(self._constant("RLIKE", self._sum()))
        return None

    def _sum(self) -> Column:
        made = self._product()
        while self._peek().text in ("+", "-", "||") and self._peek().kind == "sign":
            match self._take().text:
                case "+":
                    made = made + self._product()
                case "-":
                    made = made - self._product()
                case _:
                    made = scalar_functions.concat(made, self._product())
        return made

    def _product(self) -> Column:
        made = self._signed()
        while self._peek().text in ("*", "/", "%") and self._peek().kind == "sign":
            match self._take().text:
                case "*":
                    made = made * self._signed()
                case "/":
                    made = made / self._signed()
                case _:
                    made = made % self._signed()
        return made

    def _signed(self) -> Column:
        is_negative = False
        while self._peek().text in ("-", "+") and self._peek().kind == "sign":
            is_negative ^= self._take().text == "-"
        made = self._atom()
        while self._takes("["):
            place = self._constant("[", self._any())
            self._must("]")
            made = made[place]
        if not is_negative:
            return made
        number = _number_in(made)
        return -made if number is None else lit(-number)

    def _atom(self) -> Column:
        token = self._take()
        match token.kind:
            case "number":
                return lit(int(token.text) if token.text.isdecimal() else float(token.text))
            case "text":
                return lit(_unquoted(token.text))
            case "sign" if token.text == "(":
                made = self._any()
                self._must(")")
                return made
            case "name":
                return self._word(token)
        raise self._unreadable(
            f"{quoted(token.text)} is not expected where a value is" if token.text else "it ends too soon"
        )

    def _word(self, token: _Token) -> Column:
        """Read what begins with a word: a value, a call, or the name of a column."""
        match token.word:
            case "true" | "false":
                return lit(token.word == "true")
            case "null":
                return lit(None)
            case "case":
                return self._case()
            case "cast" if self._takes("("):
                return self._cast()
            case "interval":
                return self._interval()
            case "timestamp" | "date" if self._peek().kind == "text":
                return lit(_unquoted(self._take().text)).cast(token.word)
        if self._takes("("):
            return self._function(token.word)
        path = [_unquoted_name(token.text)]
        while self._takes("."):
            path.append(self._name())
        return col(".".join(path))

    def _case(self) -> Column:
        subject = None if self._peek().word == "when" else self._any()
        made = None
        while self._takes("when"):
            condition = self._any()
            self._must("then")
            test = condition if subject is None else subject == condition
            made = when(test, self._any()) if made is None else made.when(test, self._any())
        if made is None:
            raise self._unreadable("CASE needs WHEN")
        whole = made.otherwise(self._any()) if self._takes("else") else made
        self._must("end")
        return whole

    def _cast(self) -> Column:
        made = self._any()
        self._must("as")
        kind, open_still = "", 0
        while self._peek() is not _END and (open_still or self._peek().text != ")"):
            token = self._take().text
            open_still += {"(": 1, ")": -1}.get(token, 0)
            kind += f" {token}"
        self._must(")")
        return made.cast(arrow_type(kind.replace(" ( ", "(").replace(" )", ")").strip()))

    def _interval(self) -> Column:
        """Read a span of time: `INTERVAL 5 MINUTES`, `INTERVAL '5' MINUTE`, `INTERVAL '5 minutes'`."""
        token = self._take()
        number, _, unit = _unquoted(token.text).partition(" ") if token.kind == "text" else (token.text, "", "")
        name = (unit.strip() or self._take().text).lower()
        try:
            return lit(_UNITS[name] * float(number))
        except (KeyError, ValueError, OverflowError):
            raise self._unreadable(
                f"{brief(number)} {brief(name)} is no span of time; write INTERVAL 5 MINUTES"
            ) from None

    def _function(self, name: str) -> Column:
        given = [] if self._takes(")") else self._list()
        known = _functions()
        function = known.get(_OTHER_NAMES.get(name, name))
        if name == "if" and len(given) == 3:
            return when(given[0], given[1]).otherwise(given[2])
        if name in _AGGREGATES:
            raise self._unreadable(
                f'{name}(...) takes many rows, and an expression one; write .window(...).agg(F.{name}("column"))'
            )
        if function is None:
            raise self._unreadable(f"there is no function {quoted(name)}{did_you_mean(name, known)}")
        return self._called(name, function, given)

    def _called(self, name: str, function: Callable[..., Column], given: Sequence[Column]) -> Column:
        """Call a function with columns where it takes columns, and with plain values where it takes those."""
        parameters = list(inspect.signature(function).parameters.values())
        values: list[Any] = []
        for place, one in enumerate(given):
            parameter = parameters[min(place, len(parameters) - 1)] if parameters else None
            takes_columns = parameter is not None and "Column" in str(parameter.annotation)
            values.append(one if takes_columns else self._constant(name, one))
        try:
            return function(*values)
        except TypeError:
            told = ", ".join(str(parameter) for parameter in parameters)
            raise self._unreadable(f"{name} takes ({told}), not {len(given)} values") from None

    def _list(self) -> list[Column]:
        """Read expressions up to a closing bracket."""
        found = [self._any()]
        while self._takes(","):
            found.append(self._any())
        self._must(")")
        return found

    def _constant(self, where: str, given: Column) -> Any:
        """Return the value that is the same for every row."""
        if not isinstance(given.node, Constant):
            raise self._unreadable(f"{where} takes a value here, not a column")
        return given.node.value

    def _name(self) -> str:
        token = self._take()
        if token.kind != "name":
            raise self._unreadable(f"{quoted(token.text)} is not a name")
        return _unquoted_name(token.text)

    def _peek(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._peek()
        self._at += 1
        return token

    def _takes(self, word: str) -> bool:
        is_next = self._peek().word == word
        self._at += is_next
        return is_next

    def _must(self, word: str) -> None:
        if not self._takes(word):
            found = quoted(self._peek().text) if self._peek().text else "nothing more"
            raise self._unreadable(f"{word.upper()} is expected where it has {found}")

    def _unreadable(self, why: str) -> FlowError:
        return FlowError(f"the expression {quoted(self._text)} cannot be read: {why}")


def _functions() -> dict[str, Callable[..., Column]]:
    """Return the functions of a row by name."""
    own = vars(scalar_functions)
    return {
        name: one
        for name, one in own.items()
        if inspect.isfunction(one) and not name.startswith("_") and one.__module__ == scalar_functions.__name__
    }


def _number_in(column: Column) -> float | None:
    value = column.node.value if isinstance(column.node, Constant) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _unquoted(text: str) -> str:
    """Return what a text in quotes says; a backslash escapes, and quotes twice are one."""
    mark, inner = text[0], text[1:-1]
    return re.sub(rf"{mark}{mark}|\\(.)", lambda found: _escape(found, mark), inner, flags=re.DOTALL)


def _escape(found: re.Match[str], mark: str) -> str:
    letter = found.group(1)
    return mark if letter is None else _ESCAPED.get(letter, letter)


def _unquoted_name(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text
