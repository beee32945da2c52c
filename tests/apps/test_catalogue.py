"""What holds for every application that ships: its name, its page and picture, its made rows, and that it runs."""

import inspect
import io
import re
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

import headwater as hw
from headwater.connectors.files.formats import JsonFormat
from headwater.console.picture import draw
from headwater.loading.catalogue import CHECKOUT, shipped, shipped_app

NAMES = sorted(shipped())
ROWS = 600
CITY = "sys/SYS_sample_data_senml.csv"
READ_BY_LINE = {
    "debs2015.frequent_routes": "debs2015/debs2015_sorted_10004.csv",
    "debs2015.profitable_areas": "debs2015/debs2015_sorted_10004.csv",
    "linear_road.accidents": "linear_road/datafile20seconds.dat",
    "linear_road.tolls": "linear_road/datafile20seconds.dat",
    **dict.fromkeys(("riotbench.etl", "riotbench.pred", "riotbench.stats", "riotbench.stats_plots"), CITY),
    "riotbench.train": "sys/inputFileForTimerSpout-CITY.csv",
    "traffic.monitoring": "beijing_taxi/taxi-traces.csv",
}
READ_AS_A_WHOLE = {"taxi.demand", "urban.sensing"}  # to put them in order of time; their own tests damage their files


def app_named(name: str) -> hw.App:
    return shipped_app(name)()


def made_by(app: hw.App, first: int, count: int) -> pa.Table:
    """Return made rows as the flow would get them."""
    return pa.Table.from_batches([app.made()(first, count)]).cast(app.schema)


def page_of(name: str) -> Path:
    return CHECKOUT / "apps" / (name.replace(".", "/") + ".md")


@pytest.mark.parametrize("name", NAMES)
def test_an_application_is_named_by_its_place_and_says_what_it_does(name: str) -> None:
    kind = shipped_app(name)
    assert kind.name == name
    assert re.fullmatch(r"[A-Z0-9].{20,110}\.", shipped()[name]), "one sentence of a line's length"
    assert inspect.getdoc(kind.build), "the part that users copy says what it does"


@pytest.mark.parametrize("name", NAMES)
def test_its_page_shows_the_graph_as_it_is(name: str) -> None:
    app, page = app_named(name), page_of(name)
    graph = hw.compile_flow(app.flow(app.source(), lambda result: hw.to.nothing()))
    assert f"({page.stem}.svg)" in page.read_text(encoding="utf-8")
    picture = page.with_suffix(".svg").read_text(encoding="utf-8")
    assert picture == draw(graph), f"draw it again: headwater explain {name} --svg {picture}"


@pytest.mark.parametrize("name", NAMES)
def test_a_made_row_depends_on_its_number_alone(name: str) -> None:
    app = app_named(name)
    whole = made_by(app, 0, ROWS)
    parts = [made_by(app, first, count) for first, count in ((0, 1), (1, 6), (7, 250), (257, ROWS - 257))]
    assert whole.equals(pa.concat_tables(parts))
    assert app.made()(10**9, 3).num_rows == 3, "it never runs out"


@pytest.mark.parametrize("name", NAMES)
def test_made_rows_travel_as_messages(name: str) -> None:
    """What a generator makes can be put on a broker or into a file, and comes back the same."""
    app = app_named(name)
    table = made_by(app, 0, 200)
    if app.wire == "text":
        assert table.schema.names == ["line"]
        assert not any("\n" in line for line in table["line"].to_pylist())
        return
    written = io.BytesIO()
    for row in table.to_pylist():
        written.write(orjson.dumps(row) + b"\n")
    assert JsonFormat().parse(written.getvalue(), app.schema, True).cast(app.schema).equals(table)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs_and_every_row_is_accounted_for(name: str) -> None:
    app = app_named(name)
    results = hw.to.memory()
    status = hw.run(app.flow(app.source(rows=ROWS), lambda result: results), spark=False)
    assert status.ledger is not None
    assert status.ledger.balanced
    assert len(results.rows()) > 0, "nobody learns anything from an application without results"


def with_a_bad_line(data: Path, file: str, directory: Path) -> Path:
    """Write the begin of a real file with a line amid that is no text, beside all that lies beside it."""
    real, damaged = data / file, directory / file
    damaged.parent.mkdir(parents=True)
    for other in real.parent.iterdir():
        (damaged.parent / other.name).symlink_to(other)
    lines = real.read_bytes().splitlines(keepends=True)[:60]
    damaged.unlink()
    damaged.write_bytes(b"".join([*lines[:5], b"\xff\xfe\n", *lines[5:]]))
    return directory


@pytest.mark.parametrize("name", READ_BY_LINE)
def test_a_bad_line_of_the_real_data_is_counted_and_the_run_goes_on(name: str, data: Path, tmp_path: Path) -> None:
    place = with_a_bad_line(data, READ_BY_LINE[name], tmp_path)
    app = app_named(name).with_data(place)
    status = hw.run(app.flow(app.source(data=place), lambda result: hw.to.nothing()), spark=False)
    assert status.ledger is not None
    assert status.ledger.dropped["unparsable"] == 1
    assert status.ledger.rows_in > 6, "what stands behind it is read"
    assert status.ledger.balanced


def test_no_application_with_real_data_is_left_out_above() -> None:
    assert {name for name in NAMES if app_named(name).has_real_data} == READ_BY_LINE.keys() | READ_AS_A_WHOLE
