"""What newcomers type, and what they get: rows, or a sentence that names what to write, which then gives rows."""

import re
from dataclasses import dataclass
from typing import Any, Final

import pytest

import headwater as hw
from headwater import functions as F
from headwater.model.errors import HeadwaterError
from headwater.runtime.node import Node

Row = dict[str, Any]

SCHEMA: Final = "id int, city string, celsius double, at timestamp"
READINGS: Final = [
    {"id": 1, "city": "Bern", "celsius": 18.0, "at": "2024-05-01T12:00:01Z"},
    {"id": 2, "city": "Basel", "celsius": 25.5, "at": "2024-05-01T12:00:20Z"},
    {"id": 3, "city": "Bern", "celsius": None, "at": "2024-05-01T12:00:40Z"},
    {"id": 4, "city": "Genève", "celsius": 31.0, "at": "2024-05-01T12:01:05Z"},
]

# What Python and its libraries say of a mistake, and which tells nobody what to write.
PYTHONS_OWN: Final = (
    "AttributeError",
    "TypeError",
    "object has no attribute",
    "unhashable",
    "NodeConfig",
    "positional argument",
    "unexpected keyword",
    "not supported between",
    "not subscriptable",
    "not callable",
    "not iterable",
    "has no kernel",
    "Traceback",
)


@dataclass(frozen=True)
class Works:
    """A snippet that gives rows."""

    typed: str
    gives: list[Row]

    def check(self, node: Node) -> None:
        """Run it."""
        assert outcome(self.typed, node) == self.gives


@dataclass(frozen=True)
class Told:
    """A snippet that is answered by a sentence, and what somebody who has read it writes."""

    typed: str
    says: str
    write: str
    gives: list[Row]
    where: str = ""  # what else the sentence names: the operator, the line

    def check(self, node: Node) -> None:
        """Read the sentence, then run what is to be written."""
        with pytest.raises(HeadwaterError) as refused:
            outcome(self.typed, node)
        sentence = str(refused.value)
        assert self.says in sentence
        assert self.where in sentence
        assert [word for word in PYTHONS_OWN if word in sentence] == []
        assert outcome(self.write, node) == self.gives


@dataclass(frozen=True)
class Answered(Told):
    """A snippet that is answered by a sentence with the very word to write."""

    def check(self, node: Node) -> None:
        """See that the word is in what is written, too."""
        assert word_in(self.says) in self.write
        super().check(node)


def word_in(advice: str) -> str:
    """Return the word that an advice tells to write: what it quotes, or else what stands before its first bracket."""
    quoted = re.search(r"'(.+)'", advice)
    word = advice.split("(")[0].split("=")[0].strip(". ") if quoted is None else quoted[1]
    assert word, advice
    return word


def outcome(snippet: str, node: Node) -> list[Row]:
    """Run what was typed: an expression that is a stream, or lines that end with `stream = ...`."""
    out = hw.to.memory()
    world: Row = {"hw": hw, "F": F, "rows": readings(), "others": readings(), "untyped": untyped()}
    try:
        code = compile(snippet, "typed.py", "eval")
    except SyntaxError:
        exec(compile(snippet, "typed.py", "exec"), world)
    else:
        world["stream"] = eval(code, world)
    app = node.deploy(hw.flow("snippet", world["stream"].sink(out)))
    try:
        node.wait(app)
        if app.error is not None:
            raise app.error
    finally:
        node.remove("snippet")
    return out.rows()


def readings() -> hw.Stream:
    """Return readings whose columns are declared."""
    return hw.read.iterable([dict(row) for row in TYPED], schema=SCHEMA)


def untyped() -> hw.Stream:
    """Return readings whose columns are known when they come."""
    return hw.read.iterable([{"id": row["id"], "city": row["city"], "celsius": row["celsius"]} for row in READINGS])


def _typed() -> list[Row]:
    from datetime import datetime

    return [{**row, "at": datetime.fromisoformat(str(row["at"]))} for row in READINGS]


TYPED: Final = _typed()
