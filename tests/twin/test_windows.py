"""Windows as Spark's own."""

import math
from typing import Any

import pyarrow as pa
import pytest

from headwater.connectors import to
from headwater.dataflow.stream import flow
from headwater.operators.windows.window_specs import Aggregate, SessionWindow, TimeWindow
from tests.twin.conftest import RunTwin
from tests.twin.readings import stream_of, windows

pytestmark = pytest.mark.spark

SECOND = 1_000_000
COUNT = Aggregate("count", None, "n")
EVERY_5 = TimeWindow("ts", 5 * SECOND, 5 * SECOND)
EVERY_15 = TimeWindow("ts", 15 * SECOND, 15 * SECOND)


def listed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the values of a window in order of arrival."""
    return [{"values": [row["value"] for row in rows]}]


def test_windows_fire_at_the_watermark_and_at_the_end_of_the_input(run_twin: RunTwin) -> None:
    rows = stream_of(
        [("a", 1, 1.0), ("b", 2, None), ("a", None, 9.0), ("a", 12, 1.5), ("a", 4, 5.0), ("a", 11, 2.5)],
        [(None, 30, math.nan)],  # the watermark was at 10 s: the row of second 4 came too late for a window of 5 s
    ).with_watermark("ts", "2 seconds")
    keyed = rows.key_by("key")
    tumbling, applied, best = (to.memory() for _ in range(3))
    run_twin(
        flow(
            "windows",
            keyed.window(EVERY_5).agg(COUNT, Aggregate("sum", "value", "sum")).sink(tumbling),
            keyed.window(EVERY_15).apply(listed, form="rows").sink(applied),
            rows.window(TimeWindow("ts", 10 * SECOND, 5 * SECOND)).top_k(2, "value").sink(best),
        ),
        exact_lateness=True,
    )
    assert sorted(windows(tumbling.rows(), "key", "n", "sum")[:2]) == [(0, 5, "a", 1, 1.0), (0, 5, "b", 1, None)]
    assert windows(tumbling.rows(), "key", "n")[2:] == [(10, 15, "a", 2), (30, 35, None, 1)]
    assert math.isnan(tumbling.rows()[-1]["sum"])
    assert tumbling.table().schema.field("window").type.field("start").type == pa.timestamp("us", "Europe/Berlin")
    of_a = [row for row in applied.rows() if row["key"] == "a"]
    assert windows(of_a, "values") == [(0, 15, [1.0, 1.5, 5.0, 2.5])], "late for a window of 5 s, not for one of 15"
    assert windows(best.rows(), "value", "rank")[:-2] == [
        (-5, 5, 1.0, 1),
        (-5, 5, None, 2),
        (0, 10, 1.0, 1),
        (0, 10, None, 2),
        (5, 15, 2.5, 1),
        (5, 15, 1.5, 2),
        (10, 20, 2.5, 1),
        (10, 20, 1.5, 2),
    ]
    assert [(row["key"], row["rank"]) for row in best.rows()][-2:] == [(None, 1), (None, 1)]


def test_what_is_over_is_over_when_the_next_row_comes_and_the_end_passes_through_several_operators(
    run_twin: RunTwin,
) -> None:
    rows = stream_of(
        [("a", 1, 1.0), ("a", 7, 1.0)],
        [("a", 5.5, 1.0), ("a", 12, 1.0)],  # not late at 5 s, but the session that ended at 4 s is over
        name="here",
    ).with_watermark("ts", "2 seconds")
    other = stream_of([("a", 2, 5.0)], [("a", 13, 6.0)], name="there").with_watermark("ts", "1 second")
    sessions, twice, joined = (to.memory() for _ in range(3))
    first = rows.key_by("key").window(EVERY_5).agg(COUNT, Aggregate("max", "ts", "ts"))
    run_twin(
        flow(
            "chained",
            rows.key_by("key").window(SessionWindow("ts", 3 * SECOND)).agg(COUNT).sink(sessions),
            first.key_by("key")
            .window(TimeWindow("ts", 10 * SECOND, 10 * SECOND))
            .agg(Aggregate("sum", "n", "n"))
            .sink(twice),
            rows.join(other, "key", window=EVERY_5, how="left").window(EVERY_15).agg(COUNT).sink(joined),
        ),
        exact_lateness=True,
    )
    assert windows(sessions.rows(), "n") == [(1, 4, 1), (5.5, 10, 2), (12, 15, 1)]
    assert windows(twice.rows(), "n") == [(0, 10, 3), (10, 20, 1)]
    assert windows(joined.rows(), "n") == [(0, 15, 4)]
