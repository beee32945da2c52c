"""STATS with plots: RIoTBench's statistical summaries as its paper has them, drawn and stored."""

import os
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

import headwater as hw
from headwater import functions as F

from .archives import ARCHIVE, CHART, RESULTS, STORED, TIMES, Plot, Upload, zipped
from .counting import DistinctCount
from .datasets import MESSAGE_ID, TIMESTAMP
from .estimating import KIND, RESULT, VALUES, Kalman, Regression, result
from .parsing import OBSERVABLE, SENSOR, VALUE, ParseObservations
from .senders import OfMessages


@dataclass(frozen=True, kw_only=True)
class StatsPlots(OfMessages, hw.App):
    """Draws averages, trends and counts of sensors' readings as charts, and stores them in archives."""

    name: ClassVar[str] = "riotbench.stats_plots"

    directory: str = ""
    chart_values: int = 0
    charts_per_archive: int = 0
    log2_registers: int = 10
    parsers: int = 1
    parallelism: int = 1

    def build(self, rows: hw.Stream) -> hw.Stream:
        """Take messages apart, compute three statistics, gather each for a chart, and store charts by the hundred."""
        data, many = self.described, self.parallelism
        parse = ParseObservations(data, data.measured, absent=False)
        kalman = Kalman(data.measured)
        regression = Regression(data.measured, data.prediction_horizon)
        distinct_count = DistinctCount(self.log2_registers)
        average = (F.last(MESSAGE_ID).alias(MESSAGE_ID), F.last(TIMESTAMP).alias(TIMESTAMP), F.avg(VALUE).alias(VALUE))
        accumulate = (F.collect_list(TIMESTAMP).alias(TIMES), F.collect_list(VALUES).alias(RESULTS))
        chart_values = self.chart_values or data.chart_values
        charts_per_archive = self.charts_per_archive or data.charts_per_archive

        parsed = rows.flat_map(
            parse, schema=parse.schema, on_error="dead-letter", parallelism=self.parsers, name="parse"
        )
        blocks = parsed.key_by(SENSOR, OBSERVABLE).window(F.count_window(data.average_window))
        averages = blocks.agg(*average, parallelism=many, name="average").map(as_result, schema=RESULT, name="averages")
        smoothed = parsed.key_by(SENSOR).stateful(kalman, schema=parse.schema, parallelism=many, name="kalman")
        by_sensor, by_observable = smoothed.key_by(SENSOR), parsed.key_by(OBSERVABLE)
        trends = by_sensor.stateful(regression, schema=RESULT, parallelism=many, name="regression")
        counts = by_observable.stateful(distinct_count, schema=RESULT, parallelism=many, name="distinct_count")
        results = averages.union(trends, counts.map(of_all_sensors, schema=RESULT, name="counts"))
        for_a_chart = results.key_by(SENSOR, OBSERVABLE, KIND).window(F.count_window(chart_values))
        gathered = for_a_chart.agg(*accumulate, parallelism=many, name="accumulate")
        charts = gathered.map(Plot(data), schema=CHART, on_error="dead-letter", parallelism=many, name="plot")
        archives = charts.window(F.count_window(charts_per_archive)).apply(zipped, schema=ARCHIVE, name="zip")
        return archives.map(Upload(self.directory and os.path.abspath(self.directory)), schema=STORED, name="upload")


def as_result(averages: pa.RecordBatch) -> pa.RecordBatch:
    """Bring averages into the form of the other statistics."""
    ends = pa.array(range(averages.num_rows + 1), pa.int32())
    return result(averages, "average", pa.ListArray.from_arrays(ends, averages[VALUE]))


def of_all_sensors(counts: pa.RecordBatch) -> pa.RecordBatch:
    """Let a count be everybody's, whose message ever it came with: so there is one chart of it."""
    everybody = pa.repeat("all sensors", counts.num_rows)
    return counts.set_column(counts.schema.get_field_index(SENSOR), SENSOR, everybody)
