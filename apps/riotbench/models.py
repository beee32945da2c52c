"""Models as plain data: a decision tree is a few columns of numbers, a regression its coefficients.

RIoTBench passes models around as serialised Java objects. Here a model is one line of JSON, in a file or in a message,
that is decoded into a declared type and checked before it is used: it can be wrong, but it cannot run anything. Its
name is that of its file, `<DATASET>-<DTC|MLR>-<end of the training rows, epoch ms>.model`, as the benchmark has it.

Both kinds of model take a matrix with a column for each of their attributes and answer for all of its rows at once.
"""

import re
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

import headwater as hw

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]
ModelKind = Literal["DTC", "MLR"]  # a decision tree's classification, a multi-variate linear regression

CLASSES: Final = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")  # what every tree of the benchmark tells apart
MODEL_BYTES_MAX: Final = 8 << 20  # a tree with a leaf for each of 50,000 training rows has a third of it
DEPTH_MAX: Final = 1_000  # so that nobody can send a tree that is asked for ever
LEAF: Final = -1  # the attribute of a node that asks for nothing

_NAME: Final = re.compile(r"[A-Z0-9]+-(DTC|MLR)-[0-9]{1,19}\.model")


class WrongModel(hw.HeadwaterError):
    """Bytes that should be a model are none, or one that does not fit."""


@dataclass(frozen=True, kw_only=True)
class DecisionTree:
    """A tree of binary splits, as columns with an entry for each node; the root is the first, children follow parents.

    A node sends a row whose attribute is not above its threshold to `low`, any other to `high`.
    """

    name: str
    attributes: tuple[str, ...]
    classes: tuple[str, ...]
    attribute: tuple[int, ...]  # by its place in `attributes`; LEAF where there is nothing to ask
    threshold: tuple[float, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    answer: tuple[int, ...]  # of a leaf: its class, by its place in `classes`
    type: Literal["DTC"] = "DTC"

    def __post_init__(self) -> None:
        """Refuse what is not a tree, so that asking it always ends."""
        _check_name(self.name, "DTC")
        columns = (self.attribute, self.threshold, self.low, self.high, self.answer)
        count = len(self.attribute)
        if not count or any(len(column) != count for column in columns):
            raise ValueError("the columns of a tree have an entry for each node, and there is at least one node")
        for node, attribute in enumerate(self.attribute):
            if attribute == LEAF:
                if not 0 <= self.answer[node] < len(self.classes):
                    raise ValueError(f"leaf {node} answers with class {self.answer[node]}, which does not exist")
            elif not 0 <= attribute < len(self.attributes):
                raise ValueError(f"node {node} asks for attribute {attribute}, which does not exist")
            elif not all(node < child < count for child in (self.low[node], self.high[node])):
                raise ValueError(f"the children of node {node} must follow it among the {count} nodes")
        if self.depth > DEPTH_MAX:
            raise ValueError(f"the tree asks up to {self.depth} questions; at most {DEPTH_MAX} are asked")

    @property
    def depth(self) -> int:
        """How many questions a row may be asked."""
        depths = [0] * len(self.attribute)
        for node, attribute in enumerate(self.attribute):
            if attribute != LEAF:
                for child in (self.low[node], self.high[node]):
                    depths[child] = max(depths[child], depths[node] + 1)
        return max(depths)

    def predict(self, rows: Floats) -> Floats:
        """Return the number of each row's class; NaN where the tree asks for a value that is missing.

        All rows go down together, a level at a time; those at a leaf stay there.
        """
        arrays = _arrays_of(self)
        nodes = np.zeros(len(rows), dtype=np.intp)
        missing = np.zeros(len(rows), dtype=np.bool_)
        everyone = np.arange(len(rows))
        for _ in range(arrays.depth):
            values = rows[everyone, arrays.attribute[nodes]]
            missing |= np.isnan(values) & arrays.asks[nodes]
            nodes = np.where(values <= arrays.threshold[nodes], arrays.low[nodes], arrays.high[nodes])
        return np.where(missing, np.nan, arrays.answer[nodes])


@dataclass(frozen=True, slots=True)
class _TreeArrays:
    """A tree ready to be asked: a leaf asks for the first attribute, and sends every row to itself."""

    attribute: Ints
    threshold: Floats
    low: Ints
    high: Ints
    answer: Floats
    asks: Flags
    depth: int


@lru_cache(maxsize=64)  # a flow asks the same tree for every batch
def _arrays_of(tree: DecisionTree) -> _TreeArrays:
    attribute = np.array(tree.attribute, dtype=np.intp)
    asks, itself = attribute != LEAF, np.arange(len(attribute))
    return _TreeArrays(
        attribute=np.where(asks, attribute, 0),
        threshold=np.array(tree.threshold),
        low=np.where(asks, np.array(tree.low, dtype=np.intp), itself),
        high=np.where(asks, np.array(tree.high, dtype=np.intp), itself),
        answer=np.array(tree.answer, dtype=np.float64),
        asks=asks,
        depth=tree.depth,
    )


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A linear regression: what it says of the target is the intercept and each attribute times its coefficient."""

    name: str
    attributes: tuple[str, ...]
    target: str
    coefficients: tuple[float, ...]  # one for each attribute; 0 for the target, and for what was not selected
    intercept: float
    type: Literal["MLR"] = "MLR"

    def __post_init__(self) -> None:
        """Refuse coefficients that belong to nothing."""
        _check_name(self.name, "MLR")
        if len(self.coefficients) != len(self.attributes):
            raise ValueError(f"{len(self.attributes)} attributes need as many coefficients")
        if self.target not in self.attributes or self.coefficients[self.attributes.index(self.target)] != 0:
            raise ValueError("the target is one of the attributes, and nothing is concluded from itself")

    def predict(self, rows: Floats) -> Floats:
        """Return what each row's target should be; NaN where a value with a coefficient is missing.

        Terms are added in the order of the attributes, not by a matrix product, whose order of adding up, and with it
        the last bits, depends on the number of rows.
        """
        predicted = np.full(len(rows), self.intercept)
        for place, coefficient in enumerate(self.coefficients):
            if coefficient != 0:
                predicted += coefficient * rows[:, place]
        return predicted


Model = DecisionTree | Regression
_Kind = TypeVar("_Kind", DecisionTree, Regression)


def encoded(model: Model) -> bytes:
    """Return a model as one line of JSON."""
    return msgspec.json.encode(asdict(model))


def decoded(content: bytes) -> Model:
    """Return the model in these bytes, which may come from anywhere."""
    if len(content) > MODEL_BYTES_MAX:
        raise WrongModel(f"a model of {len(content)} bytes is not read; at most {MODEL_BYTES_MAX} are")
    try:
        said = msgspec.json.decode(content, type=dict[str, Any])
        return _made(Regression, said) if said.get("type") == "MLR" else _made(DecisionTree, said)
    except ValueError as failure:  # msgspec's are, too
        raise WrongModel(f"these {len(content)} bytes are not a model: {failure}") from failure


def _made(kind: type[_Kind], said: dict[str, Any]) -> _Kind:
    """Return the model of a kind that has all of these fields, each of its type, and no other.

    Field by field, since a class that msgspec has converted to cannot be sent to a worker any more.
    """
    types = {field.name: field.type for field in fields(kind)}
    if said.keys() != types.keys():
        odd = sorted(said.keys() ^ types.keys())[0]
        raise ValueError(f"a {kind.__name__} {'lacks the' if odd in types else 'has no'} field {odd[:80]!r}")
    return kind(**{name: msgspec.convert(said[name], type=types[name]) for name in types})


def kind_of(name: str) -> ModelKind:
    """Return which kind of model has this name: its second part says so."""
    return "DTC" if _checked(name).group(1) == "DTC" else "MLR"


def read_model(directory: Path, name: str) -> Model:
    """Return the model in the file of this name, which is a name and not a path: it may come from the network."""
    _checked(name)
    try:
        with (directory / name).open("rb") as file:
            model = decoded(file.read(MODEL_BYTES_MAX + 1))
    except OSError as failure:
        raise WrongModel(f"model {name} cannot be read from {directory}: {failure.strerror}") from failure
    if model.name != name:
        raise WrongModel(f"the file {name} in {directory} holds the model {model.name}")
    return model


def write_model(directory: Path, model: Model) -> Path:
    """Write a model to the file of its name; whoever follows the directory sees it only when it is complete."""
    place = directory / model.name
    draft = place.with_suffix(".draft")
    draft.write_bytes(encoded(model) + b"\n")
    draft.replace(place)
    return place


@dataclass(frozen=True)
class Shipped:
    """A model that a flow begins with; the version that it gives its answers is its name."""

    model: Model

    @property
    def name(self) -> str:
        """What a message calls it."""
        return self.model.name

    @property
    def refresh_us(self) -> int | None:
        """It stays until an update replaces it."""
        return None

    def load(self, known: str | None) -> tuple[Any, str] | None:
        """Return it."""
        return None if known == self.name else (self.model, self.name)


def _checked(name: str) -> re.Match[str]:
    found = _NAME.fullmatch(name)
    if found is None:
        raise WrongModel(f"{name[:80]!r} is no name of a model; one is like CITY-DTC-1422748810000.model")
    return found


def _check_name(name: str, kind: ModelKind) -> None:
    found = _NAME.fullmatch(name)
    if found is None or found.group(1) != kind:
        raise ValueError(f"a model's name is like CITY-{kind}-1422748810000.model, not {name[:80]!r}")
