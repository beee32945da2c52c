"""What somebody types who knows PySpark."""

import pytest

from headwater.runtime.node import Node
from tests.first_hour.snippets import Answered, Told, Works

IDS = [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]
WARM = [{"id": 2}, {"id": 4}]

WORKS = [
    Works('rows.select("id")', IDS),
    Works('rows.select(["id"])', IDS),
    Works('rows.select(F.col("id"))', IDS),
    Works('rows.select(hw.col("id").alias("number")).limit(1)', [{"number": 1}]),
    Works('rows.select((F.col("celsius") * 2).alias("twice")).limit(2)', [{"twice": 36.0}, {"twice": 51.0}]),
    Works('rows.select("id", (hw.col("id") + 1).alias("next")).limit(1)', [{"id": 1, "next": 2}]),
    Works('rows.select("id", twice=hw.col("id") * 2).limit(1)', [{"id": 1, "twice": 2}]),
    Works('rows.select("id").filter(hw.col("id") > 2)', [{"id": 3}, {"id": 4}]),
    Works('rows.filter(F.col("celsius") > 20).select("id")', WARM),
    Works('rows.where(F.col("celsius") > 20).select("id")', WARM),
    Works('rows.filter("celsius > 20").select("id")', WARM),
    Works('rows.where("celsius > 20 AND city != \'Basel\'").select("id")', [{"id": 4}]),
    Works('rows.filter("city LIKE \'B%\' AND celsius IS NOT NULL").select("id")', [{"id": 1}, {"id": 2}]),
    Works("rows.filter(\"city IN ('Bern', 'Basel') OR id = 4\").select(\"id\")", IDS),
    Works('rows.filter("id BETWEEN 2 AND 3").select("id")', [{"id": 2}, {"id": 3}]),
    Works('rows.filter("NOT celsius > 20").select("id")', [{"id": 1}]),
    Works('rows.filter("at >= \'2024-05-01 12:00:40\'").select("id")', [{"id": 3}, {"id": 4}]),
    Works('rows.filter("at < TIMESTAMP \'2024-05-01 12:00:20\'").select("id")', [{"id": 1}]),
    Works('rows.filter((F.col("celsius") > 20) & (F.col("city") == "Basel")).select("id")', [{"id": 2}]),
    Works('rows.filter((F.col("id") == 1) | ~(F.col("celsius") > 20)).select("id")', [{"id": 1}]),
    Works('rows.filter(F.col("city").isin("Basel", "Bern")).select("id")', IDS[:3]),
    Works('rows.filter(F.col("city").isin(["Basel"])).select("id")', [{"id": 2}]),
    Works('rows.filter(F.col("id").between(2, 3)).select("id")', [{"id": 2}, {"id": 3}]),
    Works('rows.filter(F.col("city").like("%er%")).select("id")', [{"id": 1}, {"id": 3}]),
    Works('rows.filter(F.col("city").rlike("^G.n")).select("id")', [{"id": 4}]),
    Works('rows.filter(F.col("city").startswith("B") & F.col("city").contains("as")).select("id")', [{"id": 2}]),
    Works('rows.filter(F.isnull("celsius")).select("id")', [{"id": 3}]),
    Works('rows.filter(F.col("celsius").is_null()).select("id")', [{"id": 3}]),
    Works('rows.filter(F.hour("at") == 12).filter(F.minute("at") == 1).select("id")', [{"id": 4}]),
    Works('rows.filter(F.col("at") > "2024-05-01T12:01:00Z").select("id")', [{"id": 4}]),
    Works('rows.with_column("f", F.col("celsius") * 1.8 + 32).select("id", "f").limit(1)', [{"id": 1, "f": 64.4}]),
    Works('rows.with_column("one", F.lit(1)).select("one").limit(1)', [{"one": 1}]),
    Works('rows.with_column("id", F.col("id").cast("string")).select("id").limit(1)', [{"id": "1"}]),
    Works('rows.select(F.col("celsius").cast("int").alias("whole")).limit(2)', [{"whole": 18}, {"whole": 25}]),
    Works(
        'rows.with_column("mood", F.when(F.col("celsius") > 30, "hot").when(F.col("celsius") > 20, "warm")'
        '.otherwise("cool")).select("mood")',
        [{"mood": "cool"}, {"mood": "warm"}, {"mood": "cool"}, {"mood": "hot"}],
    ),
    Works('rows.select(F.when(F.col("id") == 1, F.col("city")).alias("c")).limit(2)', [{"c": "Bern"}, {"c": None}]),
    Works(
        'rows.with_columns({"a": F.lit(1), "b": F.upper("city")}).select("a", "b").limit(1)', [{"a": 1, "b": "BERN"}]
    ),
    Works('rows.drop("at", "celsius").limit(1)', [{"id": 1, "city": "Bern"}]),
    Works('rows.drop(["at", "celsius"]).limit(1)', [{"id": 1, "city": "Bern"}]),
    Works('rows.rename({"city": "town"}).select("town").limit(1)', [{"town": "Bern"}]),
    Works('rows.select("id").limit(2)', IDS[:2]),
    Works('rows.select(F.lower("city").alias("c"), F.length("city").alias("n")).limit(1)', [{"c": "bern", "n": 4}]),
    Works('rows.select(F.concat("city", F.lit("-"), "id").alias("key")).limit(1)', [{"key": "Bern-1"}]),
    Works('rows.select(F.concat_ws("/", "city", "id").alias("key")).limit(1)', [{"key": "Bern/1"}]),
    Works('rows.select(F.substring("city", 1, 3).alias("c")).limit(1)', [{"c": "Ber"}]),
    Works('rows.select(F.regexp_replace("city", "e", "3").alias("c")).limit(1)', [{"c": "B3rn"}]),
    Works(
        'rows.select(F.coalesce("celsius", F.lit(0.0)).alias("c"))', [{"c": 18.0}, {"c": 25.5}, {"c": 0.0}, {"c": 31.0}]
    ),
    Works('rows.select(F.round(F.col("celsius") / 7, 1).alias("r")).limit(2)', [{"r": 2.6}, {"r": 3.6}]),
    Works('rows.select(F.date_format("at", "yyyy-MM-dd HH:mm").alias("t")).limit(1)', [{"t": "2024-05-01 12:00"}]),
    Works('rows.select(F.dayofweek("at").alias("d"), F.year("at").alias("y")).limit(1)', [{"d": 4, "y": 2024}]),
    Works('rows.select(F.unix_seconds("at").alias("s")).limit(1)', [{"s": 1714564801}]),
    Works('rows.select(F.expr("id * 2 AS twice")).limit(1)', [{"twice": 2}]),
    Works(
        "rows.select(F.expr(\"CASE WHEN id = 1 THEN 'one' ELSE 'more' END\").alias(\"w\")).limit(2)",
        [{"w": "one"}, {"w": "more"}],
    ),
    Works('rows.select("id").union(others.select("id")).filter("id = 1")', [{"id": 1}, {"id": 1}]),
    Works('rows.dedup("city").select("city")', [{"city": "Bern"}, {"city": "Basel"}, {"city": "Genève"}]),
    Works('rows.dedup(["city"]).select("city").limit(1)', [{"city": "Bern"}]),
    Works('rows.distinct("city")', [{"city": "Bern"}, {"city": "Basel"}, {"city": "Genève"}]),
    Works(
        'rows.with_watermark("at", "10 seconds").key_by("city").window(F.window("at", "1 minute"))'
        '.agg(F.count(), F.avg("celsius").alias("mean")).filter("city = \'Bern\'").select("count", "mean")',
        [{"count": 2, "mean": 18.0}],
    ),
    Works(
        'rows.with_watermark(F.col("at"), "10 seconds").window(F.window(F.col("at"), "1 minute"))'
        '.agg(F.sum(F.col("celsius")).alias("sum")).select("sum")',
        [{"sum": 43.5}, {"sum": 31.0}],
    ),
    Works(
        'rows.with_watermark("at", "1 second").window(F.window("at", "1 hour"))'
        '.agg([F.count_distinct("city"), F.count("*").alias("n")]).select("n", cities="count_distinct(city)")',
        [{"n": 4, "cities": 3}],
    ),
    Works('rows.key_by(["city"]).window(F.count_window(2)).agg(F.max("id")).select(m="max(id)")', [{"m": 3}]),
    Works('rows.key_by(F.col("city")).window(F.count_window(2)).agg(F.count(1)).select("count")', [{"count": 2}]),
    Works('rows.map(lambda row: {"id": row["id"] * 10}, schema="id long").limit(1)', [{"id": 10}]),
    Works('rows.filter(lambda r: r["id"] > 3).select("id")', [{"id": 4}]),
    Works('rows.filter(lambda r: r["city"].startswith("B")).select("id")', IDS[:3]),
    Works('rows.flat_map(lambda r: [{"id": r["id"]}] if r["id"] % 2 == 0 else []).select("id")', WARM),
    Works('untyped.filter("celsius > 20").select("id")', WARM),
    Works('hw.read.iterable([{"v": 1}, {"v": 2}], schema="v int").filter("v > 1")', [{"v": 2}]),
]

_NO_GROUPS = (
    'rows.with_watermark("at", "10 seconds").key_by("city").window(F.window("at", "1 hour"))'
    '.agg(F.avg("celsius").alias("mean")).filter("city = \'Basel\'").select("mean")'
)
ANSWERED = [
    Answered(
        'rows.withColumn("x", F.lit(1))',
        "with_column(",
        'rows.with_column("x", F.lit(1)).select("x").limit(1)',
        [{"x": 1}],
    ),
    Answered(
        'rows.withColumns({"x": F.lit(1)})',
        "with_columns(",
        'rows.with_columns(x=F.lit(1)).select("x").limit(1)',
        [{"x": 1}],
    ),
    Answered(
        'rows.withColumnRenamed("id", "n")', "rename(", 'rows.rename({"id": "n"}).select("n").limit(1)', [{"n": 1}]
    ),
    Answered('rows.rename("id", "n")', "rename(", 'rows.rename({"id": "n"}).select("n").limit(1)', [{"n": 1}]),
    Answered('rows.selectExpr("id * 2 AS x")', "hw.expr(", 'rows.select(hw.expr("id * 2 AS x")).limit(1)', [{"x": 2}]),
    Answered(
        'rows.withWatermark("at", "1 second")',
        "with_watermark(",
        'rows.with_watermark("at", "1 second").select("id")',
        IDS,
    ),
    Answered('rows.groupBy("city").avg("celsius")', "key_by(", _NO_GROUPS, [{"mean": 25.5}], "groupBy"),
    Answered('rows.group_by("city")', "key_by(", _NO_GROUPS, [{"mean": 25.5}], "group_by"),
    Answered('rows.agg(F.avg("celsius"))', "window(", _NO_GROUPS, [{"mean": 25.5}]),
    Answered('rows.groupby("city")', "key_by(", _NO_GROUPS, [{"mean": 25.5}]),
    Answered('rows.key_by("city").agg(F.avg("celsius"))', "window(", _NO_GROUPS, [{"mean": 25.5}]),
    Answered(
        'rows.key_by("city").count()',
        "window(",
        'rows.window(F.count_window(4)).agg(F.count()).select("count")',
        [{"count": 4}],
    ),
    Answered('rows.window("at", "1 minute")', "F.window(", _NO_GROUPS, [{"mean": 25.5}]),
    Answered(
        "rows.window(F.count_window(2)).agg(F.count)",
        "F.count()",
        'rows.window(F.count_window(4)).agg(F.count()).select("count")',
        [{"count": 4}],
    ),
    Answered(
        'rows.window(F.count_window(4)).agg({"id": "max"})',
        'F.max("id")',
        'rows.window(F.count_window(4)).agg(F.max("id")).select(m="max(id)")',
        [{"m": 4}],
    ),
    Answered(
        'rows.window(F.count_window(4)).agg(F.max("citty"))',
        "did you mean 'city'",
        'rows.window(F.count_window(4)).agg(F.max("city")).select(m="max(city)")',
        [{"m": "Genève"}],
        "window",
    ),
    Told(
        'rows.window(F.count_window(4)).agg(F.sum("city"))',
        "take another column",
        'rows.window(F.count_window(4)).agg(F.sum("id")).select(s="sum(id)")',
        [{"s": 10}],
        "typed.py:1",
    ),
    Answered(
        'rows.window(F.count_window(4)).agg(F.sum(["id"]))',
        "write 'id'",
        'rows.window(F.count_window(4)).agg(F.sum("id")).select(s="sum(id)")',
        [{"s": 10}],
        "sum",
    ),
    Answered(
        'rows.window(F.count_window(4)).agg(F.countDistinct("city"))',
        "F.count_distinct(",
        'rows.window(F.count_window(4)).agg(F.count_distinct("city")).select(n="count_distinct(city)")',
        [{"n": 3}],
    ),
    Answered(
        'rows.dropDuplicates(["city"])', "dedup(", 'rows.dedup("city").select("id")', [{"id": 1}, {"id": 2}, {"id": 4}]
    ),
    Answered("rows.distinct()", "distinct(", 'rows.distinct("city").limit(1)', [{"city": "Bern"}]),
    Answered(
        "rows.unionByName(others)", "union(", 'rows.union(others).filter("id = 1").select("id")', [{"id": 1}, {"id": 1}]
    ),
    Answered(
        'rows.orderBy("celsius")', "top_k(", 'rows.key_by("city").top_k(1, by="id").select("id").limit(1)', [{"id": 3}]
    ),
    Told("rows.show()", "hw.to.console()", 'rows.select("id")', IDS),
    Answered(
        "rows.collect()",
        "hw.to.memory()",
        'out = hw.to.memory()\nhw.run(hw.flow("name", rows.sink(out)), spark=False)\n'
        'stream = hw.read.iterable(out.rows()).select("id")',
        IDS,
    ),
    Answered(
        "rows.toPandas()",
        "out.table().to_pandas()",
        'out = hw.to.memory()\nhw.run(hw.flow("name", rows.sink(out)), spark=False)\n'
        'stream = hw.read.iterable(out.table().to_pandas().to_dict("records")).select("id")',
        IDS,
    ),
    Told('rows.writeStream.format("parquet")', ".sink(", 'rows.select("id")', IDS),
    Answered(
        "rows.count()",
        "agg(F.count())",
        'rows.window(F.count_window(4)).agg(F.count()).select("count")',
        [{"count": 4}],
    ),
    Answered('rows["celsius"]', "hw.col(", 'rows.select(hw.col("id"))', IDS),
    Answered('rows[hw.col("celsius") > 20]', "filter(", 'rows.filter(hw.col("celsius") > 20).select("id")', WARM),
    Answered('rows[["id", "city"]]', "select(", 'rows.select("id", "city").limit(1)', [{"id": 1, "city": "Bern"}]),
    Answered(
        'rows.filter(F.col("celsius").isNotNull())',
        "is_valid()",
        'rows.filter(F.col("celsius").is_valid()).select("id").limit(1)',
        [{"id": 1}],
    ),
    Answered(
        'rows.filter(F.col("celsius").isNull())',
        "is_null()",
        'rows.filter(F.col("celsius").is_null()).select("id")',
        [{"id": 3}],
    ),
    Answered(
        'rows.filter(F.col("celsius") == None)',
        ".is_null()",
        'rows.filter(F.col("celsius").is_null()).select("id")',
        [{"id": 3}],
    ),
    Answered(
        'rows.filter(F.col("celsius") is None)',
        ".is_null()",
        'rows.filter(F.col("celsius").is_null()).select("id")',
        [{"id": 3}],
    ),
    Answered(
        'rows.filter(F.col("celsius") > 20 and F.col("id") > 2)',
        "&",
        'rows.filter((F.col("celsius") > 20) & (F.col("id") > 2)).select("id")',
        [{"id": 4}],
    ),
    Answered(
        'rows.filter(20 < F.col("celsius") < 30)',
        "between(",
        'rows.filter(F.col("celsius").between(20, 30)).select("id")',
        [{"id": 2}],
    ),
    Told(
        'rows.filter(F.col("celsius") > 20 & F.col("id") > 2)',
        "brackets",
        'rows.filter((F.col("celsius") > 20) & (F.col("id") > 2)).select("id")',
        [{"id": 4}],
    ),
    Answered(
        'rows.filter("Basel" in F.col("city"))',
        ".contains(",
        'rows.filter(F.col("city").contains("Basel")).select("id")',
        [{"id": 2}],
    ),
    Answered(
        'rows.filter(F.col("city") > 1)',
        '.cast("int")',
        'rows.filter(F.col("id").cast("int") > 3).select("id")',
        [{"id": 4}],
        "typed.py:1",
    ),
    Answered(
        'rows.filter(F.col("celsus") > 1)',
        "did you mean 'celsius'",
        'rows.filter(F.col("celsius") > 26).select("id")',
        [{"id": 4}],
        "filter",
    ),
    Answered(
        'rows.filter("celsus > 1")',
        "did you mean 'celsius'",
        'rows.filter("celsius > 26").select("id")',
        [{"id": 4}],
        "filter",
    ),
    Answered(
        'untyped.filter(F.col("celsus") > 1)',
        "did you mean 'celsius'",
        'untyped.filter(F.col("celsius") > 26).select("id")',
        [{"id": 4}],
        "typed.py:1",
    ),
    Answered(
        'untyped.filter(F.col("city") > 1)',
        '.cast("int")',
        'untyped.filter(F.col("id").cast("int") > 3).select("id")',
        [{"id": 4}],
        "typed.py:1",
    ),
    Told('rows.filter("celsius >")', "ends too soon", 'rows.filter("celsius > 26").select("id")', [{"id": 4}]),
    Answered(
        'rows.filter("sum(celsius) > 1")',
        "F.sum(",
        'rows.window(F.count_window(4)).agg(F.sum("id")).select(s="sum(id)")',
        [{"s": 10}],
    ),
    Answered(
        "rows.filter(\"uper(city) = 'BERN'\")",
        "did you mean 'upper'",
        'rows.filter("upper(city) = \'BERN\'").select("id").limit(1)',
        [{"id": 1}],
    ),
    Answered(
        'rows.select("ctiy")', "did you mean 'city'", 'rows.select("city").limit(1)', [{"city": "Bern"}], "typed.py:1"
    ),
    Answered(
        'rows.select("*", "id")', "with_columns(", 'rows.with_columns(n=hw.col("id")).select("n").limit(1)', [{"n": 1}]
    ),
    Answered('rows.select(F.avg("celsius"))', ".agg(", _NO_GROUPS, [{"mean": 25.5}]),
    Answered(
        'rows.select("id", "id")', ".alias(", 'rows.select("id", hw.col("id").alias("n")).limit(1)', [{"id": 1, "n": 1}]
    ),
    Answered('rows.drop("celcius")', "did you mean 'celsius'", 'rows.drop("celsius", "at", "city")', IDS, "drop"),
    Answered(
        'rows.with_column(F.lit(1), "x")',
        "with_column(",
        'rows.with_column("x", F.lit(1)).select("x").limit(1)',
        [{"x": 1}],
    ),
    Answered(
        'rows.with_column("x", lambda r: 1)',
        "map(function)",
        'rows.map(lambda r: {**r, "x": 1}).select("x").limit(1)',
        [{"x": 1}],
    ),
    Answered(
        'rows.with_column("x", F.col("id") // 2)',
        "F.floor(",
        'rows.with_column("x", F.floor(F.col("id") / 2)).select("x").limit(2)',
        [{"x": 0}, {"x": 1}],
    ),
    Answered(
        'rows.with_column("x", F.col("city").upper())',
        "F.upper(",
        'rows.with_column("x", F.upper("city")).select("x").limit(1)',
        [{"x": "BERN"}],
    ),
    Answered(
        'rows.with_column("x", F.hour("city"))',
        '.cast("timestamp")',
        'rows.with_column("x", F.hour(F.date_format("at", '
        '"yyyy-MM-dd HH:mm:ss").alias("t").cast("timestamp"))).select("x").limit(1)',
        [{"x": 12}],
    ),
    Answered(
        'rows.with_column("x", F.current_timestamp())',
        "map(function)",
        'rows.map(lambda r: {**r, "x": 1}).select("x").limit(1)',
        [{"x": 1}],
    ),
    Answered(
        'rows.with_column("x", F.udf(len)("city"))',
        "map(function)",
        'rows.map(lambda r: {**r, "x": len(r["city"])}).select("x").limit(1)',
        [{"x": 4}],
    ),
    Answered(
        'rows.with_column("x", F.explode("city"))',
        "flat_map(function)",
        'rows.flat_map(lambda r: [{"c": c} for c in r.get("city")]).limit(1)',
        [{"c": "B"}],
    ),
    Answered(
        'rows.join(others, "id", "inner")',
        "window=",
        'rows.with_watermark("at", "1 second").join(others.with_watermark("at", "1 second"), on="id", '
        'window=F.window("at", "1 minute")).select("id").filter("id = 2")',
        [{"id": 2}],
    ),
    Answered(
        'rows.mapInPandas(len, "id int")', "flat_map(function)", 'rows.flat_map(lambda r: [{"id": r["id"] * 1}])', IDS
    ),
    Answered("rows.foreachBatch(print)", "hw.to.call(function)", 'hw.to.call(print)\nstream = rows.select("id")', IDS),
    Told("rows.printSchema()", "headwater explain", 'rows.select("id")', IDS),
    Told("rows.cache()", "nothing", 'rows.select("id")', IDS),
    Answered('rows.fitler("id > 1")', "did you mean 'filter'", 'rows.filter("id > 3").select("id")', [{"id": 4}]),
    Answered("rows.map(lambda r: r.id)", "row['id']", 'rows.map(lambda row: {"id": row["id"] + 0})', IDS, "map"),
    Answered(
        'def helper(v): return v\nstream = rows.filter(lambda r: helper(r["id"]) > 3)',
        'form="rows"',
        'def helper(v): return v\nstream = rows.filter(lambda r: helper(r["id"]) > 3, form="rows").select("id")',
        [{"id": 4}],
        "filter",
    ),
    Answered(
        'rows.map(lambda r: {"id": r["id"], "k": "ab"})',
        'form="rows"',
        'rows.map(lambda r: {"id": r["id"], "k": "ab"}, form="rows").limit(1)',
        [{"id": 1, "k": "ab"}],
        "typed.py:1",
    ),
    Answered(
        'rows.union(others.select("id"))',
        "select(",
        'rows.select("id").union(others.select("id")).filter("id = 1")',
        [{"id": 1}, {"id": 1}],
        "typed.py:1",
    ),
    Answered(
        'rows.select("id").union(others.select(id="city"))',
        'cast("int")',
        'rows.select("id").union(others.select(hw.col("id").cast("int").alias("id"))).filter("id = 1")',
        [{"id": 1}, {"id": 1}],
        "typed.py:1",
    ),
    Answered(
        'untyped.select("id").union(untyped.select(id="city"))',
        '.cast("string")',
        'untyped.select(hw.col("id").cast("string").alias("id")).union(untyped.select(id="city")).filter("id = \'1\'")',
        [{"id": "1"}],
        "union",
    ),
    Told(
        'untyped.key_by("town").window(F.count_window(2)).agg(F.count())',
        "rows have only",
        'untyped.key_by("city").window(F.count_window(2)).agg(F.count()).select("count")',
        [{"count": 2}],
        "operator 'key_by'",
    ),
    Told("rows.sink(hw.to.csv)", "csv(...)", 'rows.select("id")', IDS),
    Answered(
        'rows.map(lambda r: {**r}, schema="id itn")',
        "did you mean 'int'",
        'rows.select("id").map(lambda r: {**r}, schema="id int")',
        IDS,
    ),
    Answered(
        'hw.read.csv("x.csv", inferSchema=True)', "schema=", 'hw.read.iterable([{"v": 1}], schema="v int")', [{"v": 1}]
    ),
    Answered(
        "hw.readStream",
        "hw.read.json(",
        'import json\nopen("r.jsonl", "w").write(json.dumps({"v": 1}))\nstream = hw.read.json("r.jsonl")',
        [{"v": 1}],
    ),
    Answered(
        'hw.read.format("csv")',
        "hw.read.csv(",
        'open("r.csv", "w").write("v\\n1\\n")\nstream = hw.read.csv("r.csv")',
        [{"v": 1}],
    ),
    Answered(
        'hw.read.kafka("topic")',
        "hw.read.iterable(function)",
        'stream = hw.read.iterable(lambda: [{"v": 1}])',
        [{"v": 1}],
    ),
]


@pytest.mark.parametrize("snippet", WORKS, ids=lambda one: one.typed)
def test_what_is_typed_gives_rows(snippet: Works, node: Node) -> None:
    """As PySpark would give them."""
    snippet.check(node)


@pytest.mark.parametrize("snippet", ANSWERED, ids=lambda one: one.typed)
def test_what_is_typed_is_answered_and_the_answer_works(
    snippet: Answered | Told, node: Node, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sentence that says what to write."""
    monkeypatch.chdir(str(tmp_path))
    snippet.check(node)
