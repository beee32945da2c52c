"""The processors of PySpark's own tests and documentation, written anew from what they do.

Each exists in both forms where PySpark has both: for `transformWithStateInPandas`, and for the row-based
`transformWithState`. They use nothing of ours. What PySpark's tests expect of each is in `test_engine` and
`test_tester`.
"""

# ruff: noqa: N802, N803 - PySpark's names

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

ONE_INT = StructType([StructField("value", IntegerType(), True)])


class InBothForms(StatefulProcessor):
    """A processor that says in its constructor which form it takes."""

    def __init__(self, form: str) -> None:
        """Take DataFrames or rows."""
        self.form = form

    def each(self, rows: Any) -> Iterator[Any]:
        """Yield the rows one by one, whatever they come in."""
        for given in rows:
            if self.form == "rows":
                yield given
            else:
                yield from given.itertuples(index=False)

    def made(self, **columns: Any) -> Any:
        """Return one row of output."""
        return Row(**columns) if self.form == "rows" else pd.DataFrame({name: [one] for name, one in columns.items()})


class PandasViolations(StatefulProcessor):
    """Counts temperatures above 100 in a value, and says how many temperatures came with the batch."""

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        self.violations = handle.getValueState("numViolations", "value int", self.ttl_ms)
        self.temporary = handle.getValueState("tempState", ONE_INT)
        handle.deleteIfExists("tempState")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        with pytest.raises(PySparkRuntimeError, match="Error checking value state exists"):
            self.temporary.exists()
        count = violations = 0
        for frame in rows:
            count += frame.count().get("temperature")
            violations += frame.loc[frame["temperature"] > 100].count().get("temperature")
        before = self.violations.get()[0] if self.violations.exists() else 0
        self.violations.update((before + violations,))
        yield pd.DataFrame({"id": key, "countAsString": str(count)})


class RowViolations(PandasViolations):
    """The same by rows."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        with pytest.raises(PySparkRuntimeError, match="Error checking value state exists"):
            self.temporary.exists()
        temperatures = [row.temperature for row in rows if row.temperature is not None]
        before = self.violations.get()[0] if self.violations.exists() else 0
        self.violations.update((before + sum(one > 100 for one in temperatures),))
        yield Row(id=key[0], countAsString=str(len(temperatures)))


class PandasViolationsForAWhile(PandasViolations):
    """The same with a time to live that does not come to its end."""

    ttl_ms = 30_000


class RowViolationsForAWhile(RowViolations):
    """The same by rows."""

    ttl_ms = 30_000


class NoValue(InBothForms):
    """Finds no value, gets none, and clears what is not there."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("numViolations", ONE_INT)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        assert not self.value.exists()
        assert self.value.get() is None
        self.value.clear()
        yield self.made(id=key[0], countAsString="0")


class Lists(InBothForms):
    """Reads two lists by three iterators that must not disturb one another."""

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        element = StructType([StructField("temperature", IntegerType(), True)])
        self.one = handle.getListState("listState1", element, self.ttl_ms)
        self.two = handle.getListState("listState2", element, self.ttl_ms)
        self.times = handle.getListState("listStateTimestamp", StructType([StructField("time", TimestampType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = 0
        times = []
        for _ in self.each(rows):
            count += 1
            for state, extra in ((self.one, 111), (self.two, 222)):
                state.put([(120,), (20,)])
                state.appendValue((extra,))
                state.appendList([(120,), (20,)])
            now = dt.datetime.fromtimestamp(timerValues.getCurrentProcessingTimeInMs() / 1000)  # noqa: DTZ006
            times.append((now + dt.timedelta(minutes=1),))
        first, second = self.one.get(), self.two.get()
        assert [next(first)[0], next(second)[0], next(first)[0], next(second)[0]] == [120, 120, 20, 20]
        third = self.one.get()
        assert [next(third)[0], next(third)[0]] == [120, 20]
        assert [next(first)[0], next(second)[0], next(third)[0]] == [111, 222, 111]
        assert [[value for (value,) in rest] for rest in (first, second, third)] == [[120, 20]] * 3
        self.times.put(times)
        assert list(self.times.get()) == times
        yield self.made(id=key[0], countAsString=str(count))


class ListsForAWhile(Lists):
    """The same with a time to live that does not come to its end."""

    ttl_ms = 30_000


class GrowingList(InBothForms):
    """Keeps 100 elements, then 90 more: for key 0 by `put`, for others by `appendList`; its size is kept beside it."""

    def init(self, handle: Any) -> None:
        two = StructType([StructField("value", IntegerType()), StructField("valueNull", IntegerType())])
        self.elements = handle.getListState("listState", two)
        self.size = handle.getValueState("listSizeState", StructType([StructField("size", IntegerType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        before = list(self.elements.get())
        size = len(before)
        assert self.size.get() == ((size,) if before else None)
        assert before == [(number, None) for number in range(size)]
        grown = [(number, None) for number in range(size + 90 if before else 100)]
        if key == ("0",):
            self.elements.put(grown)
        else:
            self.elements.appendList(grown[size:])
        self.size.update((len(grown),))
        shown = [",".join(str(value) for value, _ in some) for some in (before, self.elements.get())]
        yield self.made(id=key[0], prevElements=shown[0], updatedElements=shown[1])


class Maps(InBothForms):
    """Does all that a map can: two keys, in order; removed, then cleared."""

    ttl_ms: int | None = None

    def init(self, handle: Any) -> None:
        self.counts = handle.getMapState("mapState", "name string", "count int", self.ttl_ms)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = sum(1 for _ in self.each(rows))
        one, two = ("key1",), ("key2",)
        assert not self.counts.exists()
        for name in (one, two):
            before = self.counts.getValue(name)[0] if self.counts.containsKey(name) else 0
            self.counts.updateValue(name, (before + count,))
        assert [list(self.counts.keys()), list(self.counts.values())] == [[one, two], [(count,), (count,)]]
        assert list(self.counts.iterator()) == [(one, (count,)), (two, (count,))]
        assert self.counts.getValue(one)["count"] == count
        self.counts.removeKey(one)
        assert (self.counts.containsKey(one), self.counts.exists()) == (False, True)
        self.counts.clear()
        assert not self.counts.exists()
        yield self.made(id=key[0], countAsString=str(count))


class MapsForAYear(Maps):
    """The same with a time to live that does not come to its end."""

    ttl_ms = 31_536_000_000


class MapsToRead(InBothForms):
    """Counts rows under two keys of a map that lives for a year, removes the first, and has a list that stays empty."""

    def init(self, handle: Any) -> None:
        self.counts = handle.getMapState("mapState", "name string", "count int", 31_536_000_000)
        self.listed = handle.getListState("listState", "name string")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Keep nothing of it."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = sum(1 for _ in self.each(rows))
        for name in ("key1", "key2"):
            self.counts.updateValue((name,), (count,))
        self.counts.removeKey(("key1",))
        yield self.made(id=key[0], countAsString=str(count))


class TimeToLive(InBothForms):
    """Counts rows in four ways, three of which live ten seconds; key 0 does not renew them in its second batch."""

    def init(self, handle: Any) -> None:
        self.mortal = handle.getValueState("ttl-state", ONE_INT, 10_000)
        self.immortal = handle.getValueState("state", ONE_INT)
        self.elements = handle.getListState("ttl-list-state", ONE_INT, 10_000)
        self.pairs = handle.getMapState("ttl-map-state", "id string", ONE_INT, 10_000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        fresh = sum(1 for _ in self.each(rows))
        value = (self.mortal.get()[0] if self.mortal.exists() else 0) + fresh
        always = (self.immortal.get()[0] if self.immortal.exists() else 0) + fresh
        listed = (sum(one for (one,) in self.elements.get()) if self.elements.exists() else 0) + fresh
        mapped = (self.pairs.getValue(key)[0] if self.pairs.exists() else 0) + fresh
        self.immortal.update((always,))
        if not (value == 2 and key[0] == "0"):
            self.mortal.update((value,))
            self.elements.put([(listed,), (listed,)])
            self.pairs.updateValue(key, (mapped,))
        for name, count in (
            ("ttl-count", value),
            ("count", always),
            ("ttl-list-state-count", listed),
            ("ttl-map-state-count", mapped),
        ):
            yield self.made(id=f"{name}-{key[0]}", count=count)


class ByTheClock(InBothForms):
    """Counts rows; for key 0 a timer a millisecond later takes the count back."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.count = handle.getValueState("count_state", StructType([StructField("value", StringType(), True)]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        count = (int(self.count.get()[0]) if self.count.exists() else 0) + sum(1 for _ in self.each(rows))
        if key == ("0",):
            self.handle.registerTimer(now_ms + 1)
        self.count.update((str(count),))
        yield self.made(id=key[0], countAsString=str(count), timeValues=str(now_ms))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        expiry_ms = expiredTimerInfo.getExpiryTimeInMs()
        once, again = list(self.handle.listTimers()), list(self.handle.listTimers())
        assert once == again
        assert expiry_ms in once
        self.count.clear()
        self.handle.deleteTimer(expiry_ms)
        yield self.made(id=key[0], countAsString="-1", timeValues=str(expiry_ms))


class PandasByEventTime(StatefulProcessor):
    """Tells the latest event time so far; a timer at the watermark forgets it."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.latest = handle.getValueState("max_state", StructType([StructField("value", StringType(), True)]))

    def seconds(self, rows: Any) -> list[int]:
        """Return the event times in seconds; PySpark's DataFrames have nanoseconds."""
        return [one for frame in rows for one in (frame["eventTime"].astype("int64") // 10**9).tolist()]

    def made(self, name: str, time: str) -> Any:
        """Return one row of output."""
        return pd.DataFrame({"id": (name,), "timestamp": time})

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        before = int(self.latest.get()[0]) if self.latest.exists() else 0
        latest = str(max(before, *self.seconds(rows)))
        self.latest.update((latest,))
        self.handle.registerTimer(timerValues.getCurrentWatermarkInMs())
        yield self.made(key[0], latest)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        self.latest.clear()
        self.handle.deleteTimer(expiredTimerInfo.getExpiryTimeInMs())
        yield self.made(f"{key[0]}-expired", str(expiredTimerInfo.getExpiryTimeInMs()))


class RowByEventTime(PandasByEventTime):
    """The same by rows."""

    def seconds(self, rows: Any) -> list[int]:
        """Return the event times in seconds."""
        return [int(row.eventTime.timestamp()) for row in rows]

    def made(self, name: str, time: str) -> Any:
        """Return one row of output."""
        return Row(id=name, timestamp=time)


class Adding(InBothForms):
    """Adds up temperatures over an initial state."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("value_state", ONE_INT)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.value.update((initialState.at[0, "initVal"] if self.form == "pandas" else initialState.initVal,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        value = (self.value.get()[0] if self.value.exists() else 0) + sum(row.temperature for row in self.each(rows))
        self.value.update((value,))
        names = ["id"] if len(key) == 1 else ["id1", "id2"]
        yield self.made(**dict(zip(names, key, strict=True)), value=str(value))


class AddingWithTimers(Adding):
    """The same; every key of the initial state has a timer that is past from the start."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        super().handleInitialState(key, initialState, timerValues)
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() - 1)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        self.handle.deleteTimer(expiredTimerInfo.getExpiryTimeInMs())
        yield self.made(id=f"{key[0]}-expired", value=str(expiredTimerInfo.getExpiryTimeInMs()))


class ListOfInitialState(Adding):
    """Keeps the rows of the initial state in a list, and tells them."""

    def init(self, handle: Any) -> None:
        super().init(handle)
        self.listed = handle.getListState("list_state", ONE_INT)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        for one in initialState["initVal"].tolist() if self.form == "pandas" else [initialState.initVal]:
            self.listed.appendValue((one,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield self.made(id=key[0], value=",".join(str(one) for (one,) in self.listed.get()))


class AddingOverAList(ListOfInitialState):
    """Adds up temperatures, and keeps the rows of the initial state beside the sum."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield from Adding.handleInputRows(self, key, rows, timerValues)


class Earliest(InBothForms):
    """Tells the earliest event time so far, in seconds."""

    def init(self, handle: Any) -> None:
        self.earliest = handle.getValueState("min_state", StructType([StructField("value", StringType(), True)]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        seconds = [int(row.eventTime.replace(tzinfo=dt.UTC).timestamp()) for row in self.each(rows)]
        before = [int(self.earliest.get()[0])] if self.earliest.exists() else []
        earliest = str(min(before + seconds))
        self.earliest.update((earliest,))
        yield self.made(id=key[0], timestamp=earliest)


class FirstTime(InBothForms):
    """Gives out the event time of the first row of a batch, by another name."""

    def init(self, handle: Any) -> None:
        """Keep nothing."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        times = [row.eventTime for row in self.each(rows)]
        yield self.made(id=key[0], outputTimestamp=times[0])


class Telling(InBothForms):
    """Tells one number for each key."""

    def __init__(self, form: str, number: Any) -> None:
        super().__init__(form)
        self.number = number

    def init(self, handle: Any) -> None:
        """Keep nothing."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield self.made(id=key[0], decimal_result=self.number)


class Frames(InBothForms):
    """Tells in how many DataFrames the rows of a key come."""

    def init(self, handle: Any) -> None:
        """Keep nothing."""

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        """Keep nothing of it."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        yield self.made(id=key[0], chunkCount=sum(1 for _ in rows))


class TwoFields(InBothForms):
    """Keeps the number of its key and a name made of it: the first of six versions of one processor."""

    schema = StructType([StructField("id", IntegerType(), True), StructField("name", StringType(), True)])

    def init(self, handle: Any) -> None:
        self.state = handle.getValueState("state", self.schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        before = None
        if self.state.exists():
            before = dict(zip(self.schema.names, self.state.get(), strict=True))
        shown, kept = self.seen(int(key[0]), before)
        self.state.update([kept[name] for name in self.schema.names])
        yield self.made(id=key[0], value=shown)

    def seen(self, number: int, before: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what is told and what is kept."""
        now = {"id": number, "name": f"name-{number}"}
        return now, now


class TwoStrictFields(TwoFields):
    """The same with fields that may not be null."""

    schema = StructType([StructField("id", IntegerType(), False), StructField("name", StringType(), False)])


class MoreFields(TwoFields):
    """Has three fields more; tells what was there, and makes the name longer by a digit."""

    schema = StructType(
        [
            StructField("id", IntegerType(), True),
            StructField("name", StringType(), True),
            StructField("count", IntegerType(), True),
            StructField("active", BooleanType(), True),
            StructField("score", FloatType(), True),
        ]
    )

    def seen(self, number: int, before: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        first: dict[str, Any] = {"id": number, "name": f"name-{number}", "count": 100, "active": True, "score": 99.9}
        shown = before or first
        return shown, {**shown, "name": shown["name"] + "0"}


class FewerFields(TwoFields):
    """Has the first two fields again, and goes on with the name."""

    def seen(self, number: int, before: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        now = {"id": number, "name": before["name"] if before else f"name-{number}"}
        return now, now


class OtherOrder(MoreFields):
    """Has all five in another order, and changes nothing."""

    schema = StructType([MoreFields.schema[name] for name in ("name", "id", "score", "count", "active")])

    def seen(self, number: int, before: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        shown, _ = super().seen(number, before)
        return shown, shown


class WiderField(TwoFields):
    """Has a long for the number, to which it adds the one before."""

    schema = StructType([StructField("id", LongType(), True), StructField("name", StringType(), True)])

    def seen(self, number: int, before: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
        now = {"id": number + (before["id"] + 1 if before else 0), "name": f"name-{number}"}
        return now, now


class CompositeState(InBothForms):
    """Keeps lists, dicts and named tuples inside values, lists and maps; structs come back as rows."""

    class Address(NamedTuple):
        road_id: int
        city: str

    tags = [["dummy1", "dummy2"], ["dummy3"]]  # noqa: RUF012 - read only
    metadata = [{"key": "env", "value": "prod"}, {"key": "region", "value": "us-west"}]  # noqa: RUF012
    addresses = [Address(1, "Seattle"), Address(3, "SF")]  # noqa: RUF012

    def init(self, handle: Any) -> None:
        pair = StructType([StructField("key", StringType()), StructField("value", StringType())])
        address = StructType([StructField("road_id", IntegerType()), StructField("city", StringType())])
        schema = StructType(
            [
                StructField("id", ArrayType(IntegerType())),
                StructField("tags", ArrayType(ArrayType(StringType()))),
                StructField("metadata", ArrayType(pair)),
                StructField("address", ArrayType(address)),
            ]
        )
        nested = StructType(
            [
                StructField("id", IntegerType(), True),
                StructField("attributes", MapType(StringType(), ArrayType(IntegerType())), True),
                StructField("confs", MapType(StringType(), MapType(StringType(), IntegerType()), True), True),
            ]
        )
        self.value = handle.getValueState("obj_state", schema)
        self.listed = handle.getListState("list_state", schema)
        self.mapped = handle.getMapState("map_state", "name string", nested)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        total = sum(row.temperature for row in self.each(rows))
        ids = self._value(total)
        listed = self._list(total, ids)
        attributes, confs = self._map(key[0], total)
        yield self.made(
            id=key[0],
            value_arr=",".join(map(str, ids)),
            list_state_arr=",".join(map(str, listed)),
            map_state_arr=json.dumps(attributes, sort_keys=True),
            nested_map_state_arr=json.dumps(confs, sort_keys=True),
        )

    def _value(self, total: Any) -> list[int]:
        ids = [0]
        if self.value.exists():
            ids, tags, metadata, addresses = self.value.get()
            assert tags == self.tags
            assert metadata == [Row(**one) for one in self.metadata]
            assert addresses == [Row(**one._asdict()) for one in self.addresses]
            ids = [int(one + total) for one in ids]
        self.value.update((ids, self.tags, self.metadata, self.addresses))
        return ids

    def _list(self, total: Any, ids: list[int]) -> list[int]:
        kept = [
            ([*ids, total], tags, [row.asDict() for row in metadata], addresses)
            for ids, tags, metadata, addresses in self.listed.get()
        ]
        kept = kept or [(ids, self.tags, self.metadata, self.addresses)]
        self.listed.put(kept)
        return [one for ids, *_ in kept for one in ids]

    def _map(self, key: str, total: Any) -> tuple[Any, Any]:
        if self.mapped.containsKey(key):
            number, attributes, confs = self.mapped.getValue(key)
            attributes[key] = [total]
            confs.setdefault("e1", {})[key] = total
            self.mapped.updateValue(key, (number, attributes, confs))
        else:
            self.mapped.updateValue(key, (0, {"key1": [1], "key2": [10]}, {"e1": {"e2": 5, "e3": 10}}))
        row = self.mapped.getValue(key)
        assert (row.attributes, row["confs"]) == (row[1], row[2])
        return row[1], row[2]


class CompositeOutput(InBothForms):
    """Makes lists and maps of texts and of structs."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count_state", ONE_INT)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = (self.count.get()[0] if self.count.exists() else 0) + sum(1 for _ in self.each(rows))
        self.count.update((count,))
        struct: Any = Row if self.form == "rows" else dict
        inner = [
            struct(intValue=i, doubleValue=i * 1.5, arrayValue=[f"elem_{i}"], mapValue={f"map_{i}": f"val_{i}"})
            for i in range(count)
        ]
        yield self.made(
            primitiveValue=f"key_{key[0]}_count_{count}",
            listOfPrimitive=[f"item_{i}" for i in range(count)],
            mapOfPrimitive={f"key{i}": f"value{i}" for i in range(count)},
            listOfComposite=inner,
            mapOfComposite={f"nested_key{i}": one for i, one in enumerate(inner)},
        )


class LargeValues(InBothForms):
    """Keeps half a megabyte in a value, a list and a map."""

    def init(self, handle: Any) -> None:
        text = StructType([StructField("value", StringType(), True)])
        self.value = handle.getValueState("valueState", text)
        self.listed = handle.getListState("listState", text)
        self.mapped = handle.getMapState("mapState", "key string", "value string")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        large = "a" * 512 * 1024
        self.value.update((large,))
        self.listed.put([(large,), (large + "b",), (large + "c",)])
        self.mapped.updateValue(("large_string_key",), (large,))
        yield self.made(
            id=key[0],
            valueStateResult=self.value.get()[0],
            listStateResult=",".join(one for (one,) in self.listed.get()),
            mapStateResult=f"large_string_key:{self.mapped.getValue(('large_string_key',))[0]}",
        )


class RunningCount(InBothForms):
    """Counts rows over an initial count."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", ONE_INT)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        given = initialState.at[0, "initial_count"] if self.form == "pandas" else initialState.initial_count
        self.count.update((given,))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        count = (self.count.get()[0] if self.count.exists() else 0) + sum(1 for _ in self.each(rows))
        self.count.update((count,))
        yield self.made(key=key[0], count=count)


class TopK(InBothForms):
    """Keeps the highest scores of each key in a list."""

    def __init__(self, form: str, k: int = 2) -> None:
        """Keep so many."""
        super().__init__(form)
        self.k = k

    def init(self, handle: Any) -> None:
        self.top = handle.getListState("topK", StructType([StructField("score", DoubleType(), True)]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        scores = [score for (score,) in self.top.get()] + [row.score for row in self.each(rows)]
        top = sorted(scores, reverse=True)[: self.k]
        self.top.put([(score,) for score in top])
        for score in top:
            yield self.made(key=key[0], score=score)


class WordFrequency(InBothForms):
    """Counts words in a map."""

    def init(self, handle: Any) -> None:
        self.frequencies = handle.getMapState("frequencies", "key string", "value long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in self.each(rows):
            word = (row.word,)
            count = (self.frequencies.getValue(word)[0] if self.frequencies.containsKey(word) else 0) + 1
            self.frequencies.updateValue(word, (count,))
            yield self.made(key=key[0], word=row.word, count=count)


class AllMethods(InBothForms):
    """Does with its state what each row says."""

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", ONE_INT)
        self.listed = handle.getListState("list", StructType([StructField("value", StringType(), True)]))
        self.mapped = handle.getMapState("map", "key string", "value long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in self.each(rows):
            yield self.made(key=key[0], result=f"{row.cmd}:{COMMANDS[row.cmd](self)}")

    def add_pairs(self) -> None:
        """Put three pairs into the map."""
        for number, name in enumerate("xyz", 1):
            self.mapped.updateValue((name,), (number,))


COMMANDS: dict[str, Any] = {
    "value-exists": lambda p: p.value.exists(),
    "value-set": lambda p: p.value.update((42,)),
    "value-get": lambda p: p.value.get(),
    "value-clear": lambda p: p.value.clear(),
    "list-exists": lambda p: p.listed.exists(),
    "list-append": lambda p: (p.listed.appendValue(("a",)), p.listed.appendValue(("b",))),
    "list-append-array": lambda p: p.listed.appendList([("c",), ("d",)]),
    "list-put": lambda p: p.listed.put([("e",)]),
    "list-get": lambda p: list(p.listed.get()),
    "list-clear": lambda p: p.listed.clear(),
    "map-add": lambda p: p.add_pairs(),
    "map-keys": lambda p: sorted(p.mapped.keys()),
    "map-values": lambda p: sorted(p.mapped.values()),
    "map-iterator": lambda p: sorted(p.mapped.iterator()),
    "map-get": lambda p: tuple(p.mapped.getValue(("y",)) or ()),
    "map-contains": lambda p: p.mapped.containsKey(("y",)),
    "map-remove": lambda p: p.mapped.removeKey(("y",)),
    "map-clear": lambda p: p.mapped.clear(),
}


class SessionTimeout(InBothForms):
    """Says when a key has been quiet for ten seconds by the clock."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.seen = handle.getValueState("lastSeen", StructType([StructField("lastSeen", LongType(), True)]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        if self.seen.exists():
            self.handle.deleteTimer(self.seen.get()[0] + 10_000)
        self.seen.update((now_ms,))
        self.handle.registerTimer(now_ms + 10_000)
        for row in self.each(rows):
            yield self.made(key=key[0], result=f"received:{row.value}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        self.seen.clear()
        yield self.made(key=key[0], result="session-expired")


class EventTimeSession(InBothForms):
    """Says when a key has been quiet for five seconds of event time."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.last = handle.getValueState("lastEventTime", StructType([StructField("lastEventTime", LongType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in self.each(rows):
            if self.last.exists():
                self.handle.deleteTimer(self.last.get()[0] + 5_000)
            self.last.update((row.event_time_ms,))
            self.handle.registerTimer(int(row.event_time_ms) + 5_000)
            yield self.made(key=key[0], result=f"received:{row.value}@{row.event_time_ms}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        self.last.clear()
        watermark_ms = timerValues.getCurrentWatermarkInMs()
        yield self.made(key=key[0], result=f"session-expired@watermark={watermark_ms}")


class Downtime(StatefulProcessor):
    """The documentation's example: tells every ten seconds for how long a sensor has been silent."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.seen = handle.getValueState("last_seen", StructType([StructField("last_seen", TimestampType(), True)]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        latest = pd.concat(list(rows))["timestamp"].max()
        if not self.seen.exists() or self.seen.get()[0] < latest:
            for timer in self.handle.listTimers():
                self.handle.deleteTimer(timer)
            self.seen.update((latest,))
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 5_000)
        yield pd.DataFrame()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        (seen,) = self.seen.get()
        silent = now_ms - int(seen.replace(tzinfo=dt.UTC).timestamp() * 1000)
        self.handle.registerTimer(now_ms + 10_000)
        yield pd.DataFrame({"id": key, "timeValues": str(silent)})
