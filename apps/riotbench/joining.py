"""The second half of ETL: observations become messages again, which are counted into a table and written out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

import headwater as hw

from .datasets import MESSAGE_ID, Dataset
from .lines import senml
from .parsing import OBSERVABLE, TEXT, VALUE
from .slots import Places, nth_of_slot, slots_of

ROW: Final = "row"
BATCH: Final = "batch"
PAYLOAD: Final = "payload"
TOPIC: Final = "topic"
WRITTEN: Final = pa.schema([(MESSAGE_ID, pa.int64()), (PAYLOAD, pa.string())])
PUBLISHED: Final = pa.schema([(TOPIC, pa.string()), (PAYLOAD, pa.string())])


@dataclass(frozen=True)
class JoinObservations:
    """Puts the observations of a message side by side once all of them have come; keyed by the message's id.

    Two messages of the same text have the same id. So the first observation of each kind makes the first message, the
    second ones the second. Observations whose message is not complete yet are kept.
    """

    dataset: Dataset

    @property
    def observables(self) -> tuple[str, ...]:
        """What a complete message has."""
        return tuple(field.name for field in self.dataset.observed)

    def __call__(self, observations: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Join what is complete with this batch, in the order in which it became so."""
        slots = slots_of(observations, state, self.observables)
        waiting = [(code, row) for code, rows in enumerate(state.values(())) for row in rows]
        if waiting:
            observations, slots = self._behind(waiting, observations, slots)
        message = _messages(slots, len(self.observables))
        sizes = np.bincount(message)
        complete = sizes[message] == len(self.observables)
        if not complete.all() or waiting:
            self._keep(observations, slots, np.flatnonzero(~complete), state)
        return self._side_by_side(observations, slots, message, np.flatnonzero(complete))

    def _behind(
        self, waiting: Sequence[tuple[int, Any]], observations: pa.RecordBatch, slots: Places
    ) -> tuple[pa.RecordBatch, Places]:
        """Put rows behind those that wait for them."""
        columns = zip(*(row for _, row in waiting), strict=True)
        schema = observations.schema
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        earlier = pa.RecordBatch.from_arrays(arrays, schema=schema)
        names = {name: number for number, name in enumerate(self.observables)}
        times = len(names)
        places = [
            code * times + names[name] for (code, _), name in zip(waiting, earlier[OBSERVABLE].to_pylist(), strict=True)
        ]
        return pa.concat_batches([earlier, observations]), np.concatenate([np.array(places, np.intp), slots])

    def _keep(self, observations: pa.RecordBatch, slots: Places, left: Places, state: hw.KeyedState) -> None:
        """Keep the rows whose message is not complete, and nothing of the others."""
        kept: list[Any] = [None] * len(state.keys)
        rows = observations.take(pa.array(left)).to_pylist()
        for code, row in zip((slots[left] // len(self.observables)).tolist(), rows, strict=True):
            kept[code] = [*(kept[code] or ()), list(row.values())]
        state.put_values(kept)

    def _side_by_side(
        self, observations: pa.RecordBatch, slots: Places, message: Places, rows: Places
    ) -> pa.RecordBatch:
        times = len(self.observables)
        table = rows[np.lexsort((slots[rows] % times, message[rows]))].reshape(-1, times)
        table = table[np.argsort(table.max(axis=1), kind="stable")]
        first = pa.array(table[:, 0])
        columns = {name: observations[name].take(first) for name in (MESSAGE_ID, *self.dataset.meta)}
        for field, place in zip(self.dataset.observed, table.T, strict=True):
            columns[field.name] = observations[VALUE if field.kind == "v" else TEXT].take(pa.array(place))
        schema = self.dataset.schema
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _messages(slots: Places, times: int) -> Places:
    """Return which message each row belongs to: of those with one id, the first, the second and so on."""
    nth, _ = nth_of_slot(slots)
    messages: Places = slots // times * (nth.max(initial=0) + 1) + nth
    return messages


@dataclass(frozen=True)
class TableInsert:
    """Numbers the rows of a table that is divided by sender, and says with which batch of inserts each goes.

    Keyed by the sender, as a table of Azure has to be: a batch of its inserts belongs to one partition.
    """

    dataset: Dataset
    rows_per_batch: int

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row: those of an annotated message, its number, and that of its batch."""
        annotations = [(field.name, field.type) for field in self.dataset.annotations]
        return pa.schema([*self.dataset.schema, *annotations, (ROW, pa.int64()), (BATCH, pa.int64())])

    def __call__(self, messages: pa.RecordBatch, state: hw.KeyedState) -> pa.RecordBatch:
        """Insert a batch of rows."""
        inserted = state.arrays(1, np.int64)
        codes = state.codes.astype(np.intp)
        nth, _ = nth_of_slot(codes)
        numbers = inserted[codes, 0] + nth
        inserted[:, 0] += np.bincount(codes, minlength=len(inserted))
        state.put_arrays(inserted)
        numbered = messages.append_column(ROW, pa.array(numbers))
        return numbered.append_column(BATCH, pa.array(numbers // self.rows_per_batch))


@dataclass(frozen=True)
class ToSenml:
    """Writes each annotated message as SenML; its base time becomes a text, as RIoTBench writes it."""

    dataset: Dataset

    def __call__(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Write a batch."""
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        payload = senml(columns, (*self.dataset.fields, *self.dataset.annotations), base_time_is_text=True)
        return pa.RecordBatch.from_arrays([messages[MESSAGE_ID], payload], schema=WRITTEN)


@dataclass(frozen=True)
class Publish:
    """Addresses each message to a topic."""

    topic: str

    def __call__(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Address a batch."""
        topics = pa.repeat(self.topic, messages.num_rows)
        return pa.RecordBatch.from_arrays([topics, messages[PAYLOAD]], schema=PUBLISHED)
