"""What somebody types who knows pandas or Polars."""

import pytest

from headwater.runtime.node import Node
from tests.first_hour.snippets import Answered, Told, Works

IDS = [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]
WARM = [{"id": 2}, {"id": 4}]
MEAN = (
    'rows.with_watermark("at", "10 seconds").key_by("city").window(F.window("at", "1 hour"))'
    '.agg(F.avg("celsius").alias("mean")).filter("city = \'Basel\'").select("mean")'
)
TABLE = (
    'out = hw.to.memory()\nhw.run(hw.flow("name", rows.sink(out)), spark=False)\n'
    'stream = hw.read.iterable(out.table().to_pandas()[["id"]].to_dict("records"))'
)

WORKS = [
    Works('rows.filter(hw.col("celsius") > 20).select("id")', WARM),
    Works('rows.filter(~hw.col("celsius").is_null() & (hw.col("id") != 1)).select("id")', WARM),
    Works(
        'rows.with_columns(twice=hw.col("id") * 2, half=hw.col("id") / 2).select("twice", "half").limit(1)',
        [{"twice": 2, "half": 0.5}],
    ),
    Works('rows.with_columns(text=hw.col("city") + "!").select("text").limit(1)', [{"text": "Bern!"}]),
    Works('rows.select((-hw.col("id")).alias("n"), (hw.col("id") % 2).alias("odd")).limit(1)', [{"n": -1, "odd": 1}]),
    Works('rows.select((hw.col("id") ** 2).alias("square")).limit(2)', [{"square": 1.0}, {"square": 4.0}]),
    Works('rows.select((100 - hw.col("id")).alias("left")).limit(1)', [{"left": 99}]),
    Works('rows.rename({"id": "n"}).select("n").limit(1)', [{"n": 1}]),
    Works('rows.drop("at", "city", "celsius").limit(1)', [{"id": 1}]),
    Works('rows.filter(lambda row: row["celsius"] is not None and row["celsius"] > 20).select("id")', WARM),
    Works('rows.filter(lambda row: row["city"] in ("Basel", "Bern")).select("id")', IDS[:3]),
    Works('rows.filter(lambda row: not row["celsius"]).select("id")', [{"id": 3}]),
    Works('rows.map(lambda row: {**row, "n": row["id"] + 1}).select("n").limit(1)', [{"n": 2}]),
    Works('rows.map(lambda row: {"half": row["id"] / 2}).limit(1)', [{"half": 0.5}]),
    Works("rows.map(lambda row: {\"text\": f\"{row['city']}: {row['id']}\"}).limit(1)", [{"text": "Bern: 1"}]),
    Works('rows.map(lambda row: {"c": row.get("celsius", 0.0)}).limit(1)', [{"c": 18.0}]),
    Works('rows.map(lambda row: {name: row[name] for name in row.keys() if name == "id"}).limit(1)', [{"id": 1}]),
    Works(
        'def add(row):\n    row["n"] = row["id"] + 1\n    return row\nstream = rows.map(add).select("n").limit(1)',
        [{"n": 2}],
    ),
    Works(
        "import pyarrow.compute as pc\n"
        'stream = rows.filter(lambda batch: pc.greater(batch["celsius"], 20)).select("id")',
        WARM,
    ),
    Works(
        'import pyarrow.compute as pc\nstream = rows.map(lambda batch: {"n": pc.add(batch["id"], 1)}).limit(1)',
        [{"n": 2}],
    ),
    Works(
        "import pandas as pd\ndef twice(frame: pd.DataFrame) -> pd.DataFrame:\n"
        '    return frame.assign(id=frame.id * 2)[["id"]]\nstream = rows.map(twice).limit(1)',
        [{"id": 2}],
    ),
    Works('import pyarrow.compute as pc\nstream = rows.filter(pc.field("celsius") > 20).select("id")', WARM),
    Works('rows.filter(hw.col("celsius").is_nan()).select("id")', []),
    Works(
        'rows.filter((hw.col("celsius") > 20) == (hw.col("id") > 1)).select("id")', [{"id": 1}, {"id": 2}, {"id": 4}]
    ),
]

ANSWERED = [
    Answered("rows.assign(n=1)", "with_columns(", 'rows.with_columns(n=1).select("n").limit(1)', [{"n": 1}]),
    Answered('rows.query("celsius > 20")', "filter(", 'rows.filter("celsius > 20").select("id")', WARM),
    Answered('rows.groupby("city").mean()', "key_by(", MEAN, [{"mean": 25.5}], "groupby"),
    Answered("rows.mean()", "window(", MEAN, [{"mean": 25.5}]),
    Answered("rows.apply(len)", "map(function)", 'rows.map(lambda row: {"n": len(row.keys())}).limit(1)', [{"n": 4}]),
    Answered("rows.head(2)", "limit(", 'rows.limit(2).select("id")', IDS[:2]),
    Answered(
        'rows.sort_values("id")', "top_k(", 'rows.key_by("city").top_k(1, by="id").select("id").limit(1)', [{"id": 3}]
    ),
    Answered(
        "rows.fillna(0)",
        "F.coalesce(",
        'rows.with_column("celsius", F.coalesce("celsius", hw.lit(0.0))).filter("id = 3").select("celsius")',
        [{"celsius": 0.0}],
    ),
    Answered(
        "rows.dropna()",
        "is_valid()",
        'rows.filter(hw.col("celsius").is_valid()).select("id")',
        [{"id": 1}, {"id": 2}, {"id": 4}],
    ),
    Answered(
        'rows.astype({"id": "int64"})',
        '.cast("int")',
        'rows.with_column("id", hw.col("id").cast("int")).select("id")',
        IDS,
    ),
    Answered('rows.select(hw.col("id").astype(float))', 'cast("int")', 'rows.select(hw.col("id").cast("int"))', IDS),
    Answered(
        'rows.drop_duplicates("city")', "dedup(", 'rows.dedup("city").select("id")', [{"id": 1}, {"id": 2}, {"id": 4}]
    ),
    Answered(
        'rows.merge(others, on="id")',
        "union(other)",
        'rows.union(others).filter("id = 1").select("id")',
        [{"id": 1}, {"id": 1}],
    ),
    Answered(
        "rows.append(others)",
        "union(other)",
        'rows.union(others).filter("id = 1").select("id")',
        [{"id": 1}, {"id": 1}],
    ),
    Answered('rows.rolling("1min").mean()', "F.window(", MEAN, [{"mean": 25.5}]),
    Answered('rows.resample("1min").mean()', "F.window(", MEAN, [{"mean": 25.5}]),
    Answered('rows.to_csv("x.csv")', ".sink(", TABLE, IDS),
    Answered("rows.to_pandas()", "out.table().to_pandas()", TABLE, IDS),
    Answered("rows.loc[rows.celsius > 20]", "filter(", 'rows.filter("celsius > 20").select("id")', WARM),
    Answered("rows.iloc[:2]", "limit(", 'rows.limit(2).select("id")', IDS[:2]),
    Answered(
        "rows.nunique()",
        "F.count_distinct(",
        'rows.window(F.count_window(4)).agg(F.count_distinct("city").alias("n")).select("n")',
        [{"n": 3}],
    ),
    Answered(
        'rows["n"] = hw.col("id") + 1\nstream = rows',
        "with_column(",
        'rows.with_column("n", hw.col("id") + 1).select("n").limit(1)',
        [{"n": 2}],
    ),
    Answered("rows + others", "union(", "rows.union(others).filter('id = 1').select('id')", [{"id": 1}, {"id": 1}]),
    Answered(
        'rows.map({hw.col("id"): "n"})',
        "select([column])",
        'column = hw.col("id")\nstream = rows.select([column]).limit(1)',
        [{"id": 1}],
    ),
    Answered(
        'hw.read("r.csv")',
        "hw.read.csv(",
        'open("r.csv", "w").write("id\\n1\\n")\nstream = hw.read.csv("r.csv")',
        [{"id": 1}],
    ),
    Told("rows.celsius", "a stream has no 'celsius'", 'rows.select("id")', IDS),
    Told(
        "len(rows)", "agg(F.count())", 'rows.window(F.count_window(4)).agg(F.count()).select("count")', [{"count": 4}]
    ),
    Told("[row for row in rows]", "out.rows()", TABLE, IDS),
    Answered(
        'rows.filter(hw.col("city").str.contains("B"))',
        "F.upper(",
        'rows.filter(F.upper("city").contains("B")).select("id")',
        IDS[:3],
    ),
    Answered(
        'rows.select(hw.col("at").dt.hour)', "F.hour(", 'rows.select(F.hour("at").alias("h")).limit(1)', [{"h": 12}]
    ),
    Answered(
        'rows.filter(hw.col("celsius").notna())',
        "is_valid()",
        'rows.filter(hw.col("celsius").is_valid()).select("id").limit(1)',
        [{"id": 1}],
    ),
    Answered(
        'rows.filter(hw.col("celsius").isna())',
        "is_null()",
        'rows.filter(hw.col("celsius").is_null()).select("id")',
        [{"id": 3}],
    ),
    Answered(
        'rows.filter(hw.col("id").is_in([1, 2]))',
        "isin(",
        'rows.filter(hw.col("id").isin([1, 2])).select("id")',
        IDS[:2],
    ),
    Answered(
        'rows.select(hw.col("celsius").fillna(0))',
        "F.coalesce(",
        'rows.select(F.coalesce("celsius", hw.lit(0.0)).alias("c")).limit(1)',
        [{"c": 18.0}],
    ),
    Answered(
        'rows.select(hw.col("celsius").round(1))',
        "F.round(",
        'rows.select(F.round("celsius", 1).alias("c")).limit(1)',
        [{"c": 18.0}],
    ),
    Answered(
        'rows.select(hw.col("celsius").max())',
        "F.max(",
        'rows.window(F.count_window(4)).agg(F.max("celsius").alias("m")).select("m")',
        [{"m": 31.0}],
    ),
    Told(
        'sum(hw.col("celsius"))',
        "a column has no rows",
        'rows.window(F.count_window(4)).agg(F.sum("celsius").alias("s")).select("s")',
        [{"s": 74.5}],
    ),
    Told(
        'rows.filter(hw.col("id") / 0 > 1)',
        "divide by zero",
        'rows.filter(hw.col("id") / 2 > 1.5).select("id")',
        [{"id": 4}],
        "typed.py:1",
    ),
    Told(
        'rows.with_column("n", hw.col("id") * 2000000000)',
        "overflow",
        'rows.with_column("n", hw.col("id").cast("bigint") * 2000000000).select("n").limit(1)',
        [{"n": 2000000000}],
        "typed.py:1",
    ),
    Told(
        'rows.with_column("n", hw.col("city").cast("int"))',
        "Bern",
        'rows.with_column("n", hw.col("id").cast("string").cast("int")).select("n").limit(1)',
        [{"n": 1}],
        "typed.py:1",
    ),
    Answered(
        "rows.map(lambda row: row.celsius * 2)",
        "row['celsius']",
        "rows.filter(hw.col('id') == 1).map(lambda row: {'c': row['celsius'] * 2})",
        [{"c": 36.0}],
        "map",
    ),
    Told(
        'rows.map(lambda row: row["id"] * 2)',
        "a row must be a dict",
        'rows.map(lambda row: {"id": row["id"] * 2}).limit(1)',
        [{"id": 2}],
        "typed.py:1",
    ),
    Told('rows.filter("celsius > 20", "id > 1")', "filter(", 'rows.filter("celsius > 20").select("id")', WARM),
    Told("rows.filter(None)", "a function", 'rows.filter("celsius > 20").select("id")', WARM),
    Told("rows.select(1)", "hw.lit(", 'rows.select(hw.lit(1).alias("one")).limit(1)', [{"one": 1}]),
    Answered(
        'hw.read_csv("x.csv")',
        "hw.read.csv(",
        'open("r.csv", "w").write("id\\n1\\n")\nstream = hw.read.csv("r.csv")',
        [{"id": 1}],
    ),
    Answered('hw.DataFrame([{"id": 1}])', "hw.read.iterable(", 'hw.read.iterable([{"id": 1}])', [{"id": 1}]),
    Answered(
        'hw.read.csv("r.csv", sep=";")',
        "delimiter=",
        'open("r.csv", "w").write("id;n\\n1;2\\n")\nstream = hw.read.csv("r.csv", delimiter=";")',
        [{"id": 1, "n": 2}],
    ),
    Answered(
        'hw.read.csv("r.csv", dtype={"id": int})',
        "schema=",
        'open("r.csv", "w").write("id\\n1\\n")\nstream = hw.read.csv("r.csv", schema="id long")',
        [{"id": 1}],
    ),
    Answered(
        'hw.read.iterable([{"v": 1}], schema={"v": int})',
        "id string",
        'hw.read.iterable([{"id string": "a"}])',
        [{"id string": "a"}],
    ),
    Told(
        'hw.read.iterable([{"v": 1}, {"v": "x"}])',
        "row 1",
        'hw.read.iterable([{"v": "1"}, {"v": "x"}])',
        [{"v": "1"}, {"v": "x"}],
    ),
    Told(
        'hw.read.iterable([{"v": 1}, {"v": 2**64}])',
        "row 1: 18446744073709551616 in column 'v' does not fit into 64 bits",
        'hw.read.iterable([{"v": float(2**64)}])',
        [{"v": float(2**64)}],
    ),
]


@pytest.mark.parametrize("snippet", WORKS, ids=lambda one: one.typed)
def test_what_is_typed_gives_rows(snippet: Works, node: Node) -> None:
    """As pandas would give them."""
    snippet.check(node)


@pytest.mark.parametrize("snippet", ANSWERED, ids=lambda one: one.typed)
def test_what_is_typed_is_answered_and_the_answer_works(
    snippet: Told, node: Node, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sentence that says what to write."""
    monkeypatch.chdir(str(tmp_path))
    snippet.check(node)
