"""DataFrame operators: Spark SQL as a turn, on the node's own session, among ordinary operators."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import pandas_udf

import headwater as hw
from headwater.dataflow.compile import compile_flow
from headwater.model.errors import FlowError, UserCodeError
from headwater.operators.sql import Transform
from headwater.runtime.node import Node
from tests.runtime.flows import made_rows

PATIENCE_S = 120.0
ROWS = 900


def squared(df: DataFrame) -> DataFrame:
    """A column by Spark's own expressions."""
    return df.withColumn("square", sf.col("n") * sf.col("n"))


def by_pandas(df: DataFrame) -> DataFrame:
    """A column by a pandas UDF."""

    @pandas_udf("double")  # type: ignore[call-overload]
    def half(numbers):  # type: ignore[no-untyped-def]
        return numbers / 2

    return df.withColumn("half", half("n"))


def only_even(df: DataFrame) -> DataFrame:
    """A filter."""
    return df.where("n % 2 = 0")


def run(node: Node, flow: hw.Flow) -> None:
    """Run a flow to its end and see that nothing is lost."""
    app = node.deploy(flow)
    assert node.wait(app, PATIENCE_S)
    if app.error is not None:
        raise app.error
    assert node.ledger(app).balanced


@pytest.mark.spark
def test_a_transform_stands_between_ordinary_operators(spark_node: Node) -> None:
    """Its rows come from a map in the pool and go on to one: the driver's worker only runs what needs the session."""
    sink = hw.to.memory()
    made = hw.read.generator(made_rows, rows=ROWS).map(lambda batch: batch.select(["n"]))
    out = made.transform(squared).filter(lambda batch: pc.greater(batch["square"], 100))
    run(spark_node, hw.flow("squares", out.sink(sink)))
    assert sorted((row["n"], row["square"]) for row in sink.rows()) == [(n, n * n) for n in range(11, ROWS)]


def test_transforms_in_a_row_make_one_plan() -> None:
    """One vertex, and so one Spark job for each turn."""
    made = hw.read.generator(made_rows, rows=1)
    graph = compile_flow(hw.flow("fused", made.transform(squared).transform(only_even).sink(hw.to.nothing())))
    (operator,) = [one.part for one in graph.declarations if isinstance(one.part, Transform)]
    assert [step.function for step in operator.steps] == [squared, only_even]


@pytest.mark.spark
def test_functions_udfs_queries_and_tables_work_together(spark_node: Node) -> None:
    """All of them in one plan; the query calls the rows `stream` and the table by the name it was given."""
    cities = hw.table({"sensor": ["s1", "s2"], "city": ["Geneva", "Zürich"]})
    sink = hw.to.memory()
    made = hw.read.generator(made_rows, rows=ROWS)
    joined = (
        made.transform(only_even)
        .transform(by_pandas)
        .sql("SELECT n, half, city FROM stream JOIN places USING (sensor)", places=cities)
    )
    run(spark_node, hw.flow("joined", joined.sink(sink)))
    names = {"s1": "Geneva", "s2": "Zürich"}
    rows = [(n, n / 2, names[f"s{n * 7 % 13}"]) for n in range(0, ROWS, 2) if f"s{n * 7 % 13}" in names]
    assert sorted((row["n"], row["half"], row["city"]) for row in sink.rows()) == rows


@pytest.mark.spark
def test_a_query_that_makes_no_sense_stops_the_flow_with_a_sentence(spark_node: Node) -> None:
    """Spark's own words, and which operator it was."""
    made = hw.read.generator(made_rows, rows=10)
    with pytest.raises(UserCodeError, match="nowhere"):
        run(spark_node, hw.flow("nonsense", made.sql("SELECT nowhere FROM stream", name="q").sink(hw.to.nothing())))


def test_a_node_without_spark_refuses_a_transform(thread_node: Node) -> None:
    """At once, by name."""
    made = hw.read.iterable([pa.record_batch({"n": [1]})])
    with pytest.raises(FlowError, match="transform 'sq' is run by Spark SQL, and this node runs without Spark"):
        thread_node.deploy(hw.flow("none", made.transform(squared, name="sq").sink(hw.to.nothing())))
