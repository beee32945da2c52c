"""What somebody types who knows Bytewax or Flink."""

import pytest

from headwater.runtime.node import Node
from tests.first_hour.snippets import Answered, Told, Works

IDS = [{"id": 1}, {"id": 2}, {"id": 3}, {"id": 4}]
COUNTS = 'rows.key_by("city").window(F.count_window(2)).agg(F.count()).select("count")'

WORKS = [
    Works("rows.map(lambda r: {'id': r['id'] + 1}).limit(1)", [{"id": 2}]),
    Works("rows.flat_map(lambda r: [{'c': c} for c in r.get('city')[:2]]).limit(2)", [{"c": "B"}, {"c": "e"}]),
    Works("rows.filter(lambda r: r['id'] == 2).select('id')", [{"id": 2}]),
    Works(
        "rows.flat_map(lambda r: [{'w': word} for word in r['city'].split('e')]).limit(2)", [{"w": "B"}, {"w": "rn"}]
    ),
    Works("rows.split(lambda r: r['id'] > 2)[0].select('id')", [{"id": 3}, {"id": 4}]),
    Works("rows.split(lambda r: r['id'] > 2)[1].select('id')", [{"id": 1}, {"id": 2}]),
    Works("rows.key_by('city').reduce(lambda a, b: b).select('id')", IDS),
    Works("rows.key_by('city').top_k(1, by='id').select('id')", [{"id": 3}, {"id": 2}, {"id": 4}]),
    Works("rows.union([others]).filter('id = 1').select('id')", [{"id": 1}, {"id": 1}]),
    Works(
        "def count(row, seen):\n    seen = (seen or 0) + 1\n    return [{'n': seen}], seen\n"
        "stream = rows.key_by('city').stateful(count, form='rows')",
        [{"n": 1}, {"n": 1}, {"n": 2}, {"n": 1}],
    ),
]

ANSWERED = [
    Answered("rows.key_on('city')", "key_by(", COUNTS, [{"count": 2}]),
    Answered("rows.keyBy('city')", "key_by(", COUNTS, [{"count": 2}]),
    Answered("rows.inspect('debug')", "hw.to.console()", "hw.to.console()\nstream = rows.select('id')", IDS),
    Answered("rows.output('out')", "hw.to.console()", "hw.to.console()\nstream = rows.select('id')", IDS),
    Answered(
        "rows.filter_map(lambda r: None)",
        "flat_map(function)",
        "rows.flat_map(lambda r: None if r['id'] > 1 else [{**r}]).select('id')",
        [{"id": 1}],
    ),
    Answered(
        "rows.branch(lambda r: r['id'] > 2)",
        "split(function)",
        "rows.split(lambda r: r['id'] > 3)[0].select('id')",
        [{"id": 4}],
    ),
    Answered("rows.stateful_map(len)", "key_by(", COUNTS, [{"count": 2}]),
    Answered("rows.stateful(len)", "key_by(", COUNTS, [{"count": 2}]),
    Answered("rows.reduce(lambda a, b: b)", "key_by(", "rows.key_by('city').reduce(lambda a, b: b).select('id')", IDS),
    Answered(
        "rows.top_k(1, by='id')", "key_by(", "rows.key_by('city').top_k(1, by='id').select('id').limit(1)", [{"id": 3}]
    ),
    Answered("rows.fold_window(len)", "window(", COUNTS, [{"count": 2}]),
    Answered(
        "rows.collect_window(len)",
        ".apply(",
        "rows.key_by('city').window(F.count_window(2)).apply(lambda rows: [{'n': 2}], form='rows').select('n')",
        [{"n": 2}],
    ),
    Answered("rows.count_window(2)", "F.count_window(", COUNTS, [{"count": 2}]),
    Answered("rows.timeWindow('1 minute')", "window(", COUNTS, [{"count": 2}]),
    Answered("rows.key_by('city').window(F.count_window(2)).count()", "agg(F.count())", COUNTS, [{"count": 2}]),
    Answered(
        "rows.key_by('city').window(F.count_window(2)).sum('id')",
        "F.sum(",
        "rows.key_by('city').window(F.count_window(2)).agg(F.sum('id').alias('s')).select('s')",
        [{"s": 4}],
    ),
    Answered(
        "rows.key_by('city').window(F.count_window(2)).reduce(max)",
        "apply(",
        "rows.key_by('city').window(F.count_window(2)).apply(lambda rows: [{'n': 2}], form='rows').select('n')",
        [{"n": 2}],
    ),
    Answered("rows.key_by('city').window(F.count_window(2)).select('id')", "agg(F.count())", COUNTS, [{"count": 2}]),
    Answered(
        "rows.key_by('city').window(F.tumbling('at', '1 minute'))",
        "F.window(",
        "rows.with_watermark('at', '1 second').window(F.window('at', '1 hour')).agg(F.count()).select('count')",
        [{"count": 4}],
    ),
    Answered(
        "rows.key_by('city').window(F.SessionWindow('at', '1 minute'))",
        "F.session_window(",
        "rows.with_watermark('at', '1 second').window(F.session_window('at', '1 hour')).agg(F.count()).select('count')",
        [{"count": 4}],
    ),
    Answered("rows.redistribute()", "parallelism=", "rows.map(lambda r: {'id': r['id'] + 0}, parallelism=1)", IDS),
    Answered("rows.print()", "hw.to.console()", "hw.to.console()\nstream = rows.select('id')", IDS),
    Answered(
        "rows.run()",
        "hw.run(",
        "hw.run(hw.flow('name', rows.sink(hw.to.nothing())), spark=False)\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.Dataflow('name')",
        "hw.flow(",
        "hw.flow('name', rows.sink(hw.to.console()))\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.flow(rows.sink(hw.to.console()))",
        "hw.flow(",
        "hw.flow('name', rows.sink(hw.to.console()))\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.flow('name', rows)",
        ".sink(",
        "hw.flow('name', rows.sink(hw.to.console()))\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.flow('name')", ".sink(", "hw.flow('name', rows.sink(hw.to.console()))\nstream = rows.select('id')", IDS
    ),
    Answered(
        "hw.flow('name', rows.sink(hw.to.console())).run()",
        "hw.run(",
        "hw.run(hw.flow('name', rows.sink(hw.to.nothing())), spark=False)\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.run([hw.flow('name', rows.sink(hw.to.nothing()))])",
        "hw.run(",
        "hw.run(hw.flow('name', rows.sink(hw.to.nothing())), spark=False)\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.run(rows)",
        "hw.run(",
        "hw.run(hw.flow('name', rows.sink(hw.to.nothing())), spark=False)\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.run(rows.sink(hw.to.nothing()))",
        "hw.run(",
        "hw.run(hw.flow('name', rows.sink(hw.to.nothing())), spark=False)\nstream = rows.select('id')",
        IDS,
    ),
    Answered(
        "hw.run(hw.flow('name', rows.sink(hw.to.nothing())), worker=1)",
        "did you mean 'workers'",
        "hw.run(hw.flow('name', rows.sink(hw.to.nothing())), workers=1, spark=False)\nstream = rows.select('id')",
        IDS,
    ),
    Answered("rows.sink(hw.to.print())", "hw.to.console()", "hw.to.console()\nstream = rows.select('id')", IDS),
    Answered("rows.sink(print)", "hw.to.console()", "hw.to.console()\nstream = rows.select('id')", IDS),
    Answered("rows.sink('out.csv')", "hw.to.csv(", "hw.to.csv('out.csv')\nstream = rows.select('id')", IDS),
    Answered(
        "hw.source([{'id': 1}])",
        "hw.read.csv(",
        "open('r.csv', 'w').write('id\\n1\\n')\nstream = hw.read.csv('r.csv')",
        [{"id": 1}],
    ),
    Answered(
        "rows.union(hw.flow('name', rows.sink(hw.to.nothing())))",
        "hw.flow(",
        "hw.flow('name', rows.union(others).sink(hw.to.nothing()))\nstream = rows.select('id')",
        IDS,
    ),
    Answered("rows.union(rows.key_by('city').window(F.count_window(2)))", ".agg(", COUNTS, [{"count": 2}]),
    Answered(
        "rows.split(lambda r: r['id'] > 2, into='big')",
        "into=",
        "rows.split(lambda r: 'big' if r['id'] > 2 else 'others', into=['big', 'others'])[0].select('id')",
        [{"id": 3}, {"id": 4}],
    ),
    Answered(
        "rows.split(hw.col('id') > 2)", "filter(", "rows.filter(hw.col('id') > 2).select('id')", [{"id": 3}, {"id": 4}]
    ),
    Answered(
        "rows.map(hw.col('id') * 2)", "select(", "rows.select((hw.col('id') * 2).alias('id')).limit(1)", [{"id": 2}]
    ),
    Answered(
        "rows.map(len(rows.key_by('city').key))",
        "a function",
        "rows.map(lambda r: {'a function': r['id'] + 0}).limit(1)",
        [{"a function": 1}],
    ),
    Told(
        "rows.map(lambda r: [r['id'] + 1])",
        "a row must be a dict",
        "rows.map(lambda r: {'id': r['id'] + 1}).limit(1)",
        [{"id": 2}],
        "typed.py:1",
    ),
    Told(
        "rows.flat_map(lambda r: {'id': r['id'] + 1})",
        "a list of row dicts",
        "rows.flat_map(lambda r: [{'id': r['id'] + 1}]).limit(1)",
        [{"id": 2}],
        "typed.py:1",
    ),
    Answered(
        "rows.with_watermark(['at'], '1 second')",
        "write 'at'",
        "rows.with_watermark('at', '1 second').select('id')",
        IDS,
    ),
    Answered(
        "rows.key_by(hw.col('id') % 2)",
        "with_column(",
        "rows.with_column('new', hw.col('id') % 2).key_by('new').window(F.count_window(2)).agg(F.count())"
        ".select('count')",
        [{"count": 2}, {"count": 2}],
    ),
    Told(
        "rows.key_by('city').window(F.window('at', '1 minute')).agg(F.count())",
        "with_watermark(",
        "rows.with_watermark('at', '1 second').window(F.window('at', '1 hour')).agg(F.count()).select('count')",
        [{"count": 4}],
        "typed.py:1",
    ),
    Told(
        "rows.key_by('city', 'at').window(F.window('city', '1 minute')).agg(F.count())",
        "watermark",
        "rows.with_watermark('at', '1 second').window(F.window('at', '1 hour')).agg(F.count()).select('count')",
        [{"count": 4}],
    ),
]


@pytest.mark.parametrize("snippet", WORKS, ids=lambda one: one.typed)
def test_what_is_typed_gives_rows(snippet: Works, node: Node) -> None:
    """As Bytewax would give them."""
    snippet.check(node)


@pytest.mark.parametrize("snippet", ANSWERED, ids=lambda one: one.typed)
def test_what_is_typed_is_answered_and_the_answer_works(
    snippet: Told, node: Node, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a sentence that says what to write."""
    monkeypatch.chdir(str(tmp_path))
    snippet.check(node)
