"""MQTT's topics: names to publish to, filters to subscribe with, and templates that make names from rows.

All rules are those of MQTT 5, section 4.7, which 3.1.1 shares. Nothing here touches a network.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headwater.model.errors import ConnectorError, FlowError, SchemaMismatch
from headwater.model.quoting import brief, listed, quoted

TOPIC_BYTES_MAX: Final = 65_535
SHARED: Final = "$share/"
_WILDCARDS: Final = "+#"


def checked_filter(topic: str) -> str:
    """Return a valid topic filter, or raise FlowError with the reason."""
    _refuse_unwritable(topic)
    levels = topic.split("/")
    for number, level in enumerate(levels):
        if "#" in level and (level != "#" or number < len(levels) - 1):
            raise FlowError(f"topic {quoted(topic)}: # stands alone, as the last level: city/#")
        if "+" in level and level != "+":
            raise FlowError(f"topic {quoted(topic)}: + stands for a whole level: city/+/dust")
    if topic.startswith(SHARED) and (len(levels) < 3 or not levels[1] or levels[1] in _WILDCARDS or not levels[2]):
        raise FlowError(f"topic {quoted(topic)}: a shared subscription is written $share/GROUP/TOPIC")
    return topic


def checked_name(topic: str) -> str:
    """Return a valid topic name to publish to, or raise FlowError with the reason."""
    _refuse_unwritable(topic)
    if any(wildcard in topic for wildcard in _WILDCARDS):
        raise FlowError(f"topic {quoted(topic)}: a message is sent to one topic, without + and #")
    return topic


def shared_filter(group: str, topic: str) -> str:
    """Return the filter of a shared subscription, by which a group divides a topic's messages."""
    if not group or any(character in group for character in "/+#\0"):
        raise FlowError(f"shared={quoted(group)} cannot name a group; give a word without /, + and #")
    if topic.startswith(SHARED):
        raise FlowError(f"topic {quoted(topic)} is shared already; leave out shared=")
    return checked_filter(f"{SHARED}{group}/{topic}")


def _refuse_unwritable(topic: str) -> None:
    if not topic:
        raise FlowError("a topic cannot be empty; write it behind the host, as in mqtt://host/city/dust")
    if "\0" in topic:
        raise FlowError(f"topic {quoted(topic)} contains a null character, which MQTT forbids")
    try:
        size = len(topic.encode())
    except UnicodeEncodeError:
        raise FlowError(f"topic {quoted(topic)} is not text that UTF-8 can hold") from None
    if size > TOPIC_BYTES_MAX:
        raise FlowError(f"a topic of {size} bytes is too long; MQTT allows {TOPIC_BYTES_MAX}")


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """The topic of each row: fixed text, with a column's value for each `{column}`."""

    text: str

    def __post_init__(self) -> None:
        """Refuse a template that cannot give a valid topic name."""
        for literal, column in self._parts():
            if column == "":
                raise FlowError(f"topic {quoted(self.text)}: name a column between the braces, as in city/{{source}}")
            if literal:
                checked_name(literal)
        _refuse_unwritable(self.text)

    def topics(self, batch: pa.RecordBatch) -> list[str]:
        """Return the topic of every row."""
        pieces: list[Any] = []
        for literal, column in self._parts():
            pieces.append(literal)
            if column is not None:
                pieces.append(self._texts(batch, column))
        if all(isinstance(piece, str) for piece in pieces):
            return ["".join(pieces)] * batch.num_rows
        topics: list[str] = pc.binary_join_element_wise(*pieces, "").to_pylist()
        for topic in set(topics):
            self._refuse_bad(topic)
        return topics

    def _parts(self) -> Sequence[tuple[str, str | None]]:
        try:
            parsed = list(string.Formatter().parse(self.text))
        except ValueError as failure:
            raise FlowError(
                f"topic {quoted(self.text)}: {failure}; write a column as {{name}}, and a brace as two"
            ) from failure
        for _, column, form, conversion in parsed:
            if form or conversion:
                raise FlowError(f"topic {quoted(self.text)}: only plain {{{brief(column)}}} is known, without : and !")
        return [(literal, column) for literal, column, _, _ in parsed]

    def _texts(self, batch: pa.RecordBatch, column: str) -> pa.Array:
        if column not in batch.schema.names:
            known = listed(batch.schema.names)
            raise SchemaMismatch(
                f"topic {quoted(self.text)} names column {quoted(column)}, but rows have only: {known}"
            )
        values = batch.column(column)
        if values.null_count:
            raise ConnectorError(
                f"topic {quoted(self.text)}: column {quoted(column)} is null in a row; filter such rows out first"
            )
        try:
            return values.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as failure:
            raise SchemaMismatch(
                f"topic {quoted(self.text)}: column {quoted(column)} is {values.type}, which is no text"
            ) from failure

    def _refuse_bad(self, topic: str) -> None:
        try:
            checked_name(topic)
        except FlowError as failure:
            raise ConnectorError(
                f"topic {quoted(self.text)} makes a topic that MQTT does not allow: {failure}"
            ) from failure
