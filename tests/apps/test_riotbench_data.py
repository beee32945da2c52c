"""RIoTBench's data sets: made messages are like the real ones, and lines are read as they are meant."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from apps.riotbench.datasets import DATASETS, dataset
from apps.riotbench.identities import made_metadata, read_metadata
from apps.riotbench.lines import MadeLines, real_lines
from apps.riotbench.parsing import BadMessage, Parse, ParseObservations
from headwater.model.errors import ConfigError

SAMPLES = [name for name, known in DATASETS.items() if known.sample]
SCHEMA_FILES = {
    "city": "sys/sys-schema-with-annotationfields.txt",
    "taxi": "taxi/taxi-schema_with_annotation.csv",
    "fit": "fit/mhealth_schema_with_annoted_fields.csv",
}


def real(name: str, data: Path) -> list[str]:
    sample = DATASETS[name].sample
    assert sample is not None
    return (data / sample).read_text(encoding="utf-8").splitlines()


def made(name: str, count: int, **options: Any) -> list[str]:
    lines: list[str] = MadeLines(name, **options)(0, count)["line"].to_pylist()
    return lines


def parse(name: str, lines: list[str]) -> pa.RecordBatch:
    return Parse(dataset(name))(pa.record_batch({"line": lines}))


def frame(name: str, lines: list[str]) -> pd.DataFrame:
    """Return the messages as the JSON says, without any code of the application."""
    messages = [json.loads(line.split(",", 1)[1]) for line in lines]
    fields = [{entry["n"]: entry.get("v", entry.get("sv")) for entry in message["e"]} for message in messages]
    return pd.DataFrame(fields).assign(timestamp=[int(message["bt"]) for message in messages])


@pytest.mark.parametrize("name", SAMPLES)
def test_made_messages_are_written_as_the_real_ones(name: str, data: Path) -> None:
    """The same entries, units and kinds of value, in the same order; a base time of the same type; its time first."""

    def shape(line: str) -> Any:
        time, payload = line.split(",", 1)
        message = json.loads(payload)
        assert int(time) == int(message["bt"])
        entries = [(entry["n"], entry["u"].strip(), "v" if "v" in entry else "sv") for entry in message["e"]]
        return entries, type(message["bt"]), list(message)

    assert shape(made(name, 1)[0]) == shape(real(name, data)[0])


@pytest.mark.parametrize("name", SAMPLES)
def test_the_fields_are_those_of_the_benchmarks_own_schema_files(name: str, data: Path) -> None:
    names, _, kinds = ((data / SCHEMA_FILES[name]).read_text(encoding="utf-8")).split("\n")[:3]
    fields = [*DATASETS[name].fields, *DATASETS[name].annotations]
    assert [field.name for field in fields] == names.strip().split(",")
    assert [field.kind for field in fields] == kinds.strip().split(",")


@pytest.mark.parametrize(("name", "fields"), [("city", 9), ("taxi", 17), ("fit", 26), ("grid", 3)])
def test_what_goes_along_and_what_is_observed_make_a_whole_message(name: str, fields: int) -> None:
    """The number that the benchmark's join waits for, where its files agree with one another."""
    known = DATASETS[name]
    assert len(known.meta) + len(known.observed) == len(known.fields) == fields
    assert {one.field for ranges in known.ranges.values() for one in ranges} <= set(known.measured)
    assert known.bloom_field in (None, known.id_field)


@pytest.mark.parametrize("name", ["city", "taxi"])
def test_made_values_are_distributed_as_in_the_real_sample(name: str, data: Path) -> None:
    """Means, quartiles and spread of every observable, in units of the real spread; how many senders there are."""
    known, ours, theirs = DATASETS[name], frame(name, made(name, 4000)), frame(name, real(name, data))
    for field in known.measured:
        mine, real_ones = ours[field].astype(float), theirs[field].astype(float)
        spread = real_ones.std()
        assert abs(mine.mean() - real_ones.mean()) < 0.15 * spread, field
        assert 0.6 < mine.std() / spread < 1.4, field
        assert np.abs(mine.quantile([0.1, 0.5, 0.9]) - real_ones.quantile([0.1, 0.5, 0.9])).max() < 0.3 * spread, field
    first = frame(name, made(name, 1000))
    assert first[known.id_field].nunique() == pytest.approx(theirs[known.id_field].nunique(), rel=0.07)
    span = theirs["timestamp"].max() - theirs["timestamp"].min()
    assert first["timestamp"].max() - first["timestamp"].min() == pytest.approx(span, rel=0.02)
    assert first["timestamp"].min() == theirs["timestamp"].min()


@pytest.mark.parametrize("name", ["city", "taxi", "grid"])
def test_a_few_made_messages_are_from_senders_that_nobody_knows(name: str) -> None:
    senders = frame(name, made(name, 5000, sensors=100))[DATASETS[name].id_field]
    known = made_metadata(DATASETS[name], 100, 1)[DATASETS[name].id_field].to_pylist()
    assert 0.01 < 1 - senders.isin(known).mean() < 0.03
    assert senders[senders.isin(known)].nunique() > 60


def test_fit_has_ten_people_at_fifty_hertz_whose_hearts_beat() -> None:
    found = frame("fit", made("fit", 2000))
    one = found[found["subjectId"] == "subject3"]
    assert found["subjectId"].nunique() == 10
    assert set(np.diff(one["timestamp"])) == {20}
    assert one["ecg_lead_1"].astype(float).max() > 0.7
    assert abs(one["ecg_lead_1"].astype(float).median()) < 0.2


def test_grid_has_every_meter_once_in_half_an_hour() -> None:
    found = frame("grid", made("grid", 300, sensors=100))
    known = found[found["meterid"].isin(made_metadata(DATASETS["grid"], 100, 1)["meterid"].to_pylist())]
    apart = known.sort_values("timestamp").groupby("meterid")["timestamp"].diff().dropna()
    assert set(apart) <= {1_800_000, 3_600_000}, "one in fifty is by a stranger instead"
    assert (apart == 1_800_000).mean() > 0.9
    assert found["energyconsumed"].astype(float).median() == pytest.approx(8.2, rel=0.5)


@pytest.mark.parametrize("name", list(DATASETS))
def test_what_is_parsed_is_what_the_json_says(name: str) -> None:
    lines = made(name, 300)
    parsed = parse(name, lines).to_pandas().drop(columns="msgid")
    pd.testing.assert_frame_equal(
        parsed, frame(name, lines)[parsed.columns].astype(parsed.dtypes.to_dict()), check_dtype=True
    )


@pytest.mark.parametrize("name", SAMPLES)
def test_real_messages_are_parsed_as_the_json_says(name: str, data: Path) -> None:
    parsed = parse(name, real(name, data)).to_pandas().drop(columns="msgid")
    pd.testing.assert_frame_equal(parsed, frame(name, real(name, data))[parsed.columns].astype(parsed.dtypes.to_dict()))


@pytest.mark.parametrize("name", list(DATASETS))
def test_a_message_is_taken_apart_into_its_observations(name: str) -> None:
    """In order, each with the message's id, its sender and its meta fields; a number or a text."""
    known, lines = DATASETS[name], made(name, 40)
    messages = parse(name, lines).to_pylist()
    rows = ParseObservations(known, tuple(field.name for field in known.observed))(pa.record_batch({"line": lines}))
    assert rows.to_pylist() == [
        {
            "msgid": message["msgid"],
            "sensor": message[known.id_field],
            **{name: message[name] for name in known.meta},
            "obs": field.name,
            "value": message[field.name] if field.kind == "v" else None,
            "text": message[field.name] if field.kind == "sv" else None,
        }
        for message in messages
        for field in known.observed
    ]


GRID = '{"e":[%s],"bt":1}'
METER = '{"u":"string","n":"meterid","sv":"7"}'


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("1," + GRID % (METER + ',{"v":"2.5","u":"kwh","n":"energyconsumed"}'), 2.5),
        (
            GRID % (METER + ',{"v":"2.5","u":"kwh","n":"energyconsumed"}'),
            2.5,
        ),  # as a broker sends it: no time before it
        (GRID % ('{"v":"2.5","u":"kwh","n":"energyconsumed"},' + METER), 2.5),  # in another order
        (GRID % (METER + ',{"n":"colour","sv":"red"},{"v":"2.5","n":"energyconsumed"}'), 2.5),  # with something else
        (GRID % (METER + ',{"v":2.5,"n":"energyconsumed"}'), 2.5),  # a number that is a number
        ((GRID % ('{"n":"rid","sv":"7"},{"v":"2.5","n":"x"}')).replace("{", '{"bn":"mete",', 1), None),  # a base name
        (GRID % METER, None),
        (GRID % (METER + ',{"v":"null","n":"energyconsumed"}'), None),
        (GRID % (METER + ',{"v":"nan","n":"energyconsumed"}'), None),
        (GRID % (METER + ',{"v":"1e999","n":"energyconsumed"}'), None),
        (GRID % (METER + ',{"v":"-Infinity","n":"energyconsumed"}'), None),
        (GRID % (METER + ',{"v":" 2.5 ","n":"energyconsumed"}'), 2.5),  # as Java reads it
    ],
)
def test_a_message_may_be_written_in_other_ways(line: str, value: float | None) -> None:
    row = parse("grid", [line]).to_pylist()[0]
    assert (row["timestamp"], row["meterid"], row["energyconsumed"]) == (1, "7", value)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("", "Input data was truncated"),
        ("1,[]", "Expected `object`, got `array`"),
        ('{"bt":1}', "missing required field `e`"),
        (GRID % '{"v":"1"}', "missing required field `n`"),
        (GRID % '{"n":"meterid","sv":7}', "Expected `str | null`, got `int`"),
        ((GRID % METER).replace(":1}", ':"x"}'), "the base time 'x' is not a number"),
        ((GRID % METER).replace(":1}", ':"1_000"}'), "the base time '1_000' is not a number"),
        ((GRID % METER).replace(":1}", ':"\uff11"}'), "the base time '\uff11' is not a number"),
        ((GRID % METER).replace(":1}", f":{2**63}}}"), "the base time '9223372036854775808' is not a number"),
        ('{"x":' + "[" * 100_000, "recursion"),
        (GRID % (METER + ',{"v":"warm","n":"energyconsumed"}'), "energyconsumed is not a number but 'warm'"),
        (GRID % (METER + ',{"v":"1_000","n":"energyconsumed"}'), "energyconsumed is not a number but '1_000'"),
        (GRID % (METER + ',{"v":"\uff11","n":"energyconsumed"}'), "energyconsumed is not a number but '\uff11'"),
        (GRID % '{"v":"1","n":"energyconsumed"}', "a message has no meterid"),
    ],
)
def test_what_is_no_message_is_told(line: str, sentence: str) -> None:
    with pytest.raises(BadMessage) as told:
        parse("grid", [line])
    assert sentence in str(told.value)


def test_what_is_a_number_does_not_depend_on_the_other_messages_of_a_batch() -> None:
    """Nor on whether all of them write it as a text, or some as a number."""
    written = ['"2.5"', "2.5", "null", '"null"', '" 2.5"', '"nan"']
    lines = [GRID % (METER + f',{{"v":{one},"n":"energyconsumed"}}') for one in written]
    alone = [parse("grid", [line])["energyconsumed"][0].as_py() for line in lines]
    assert parse("grid", lines)["energyconsumed"].to_pylist() == alone == [2.5, 2.5, None, None, 2.5, None]


def test_equal_lines_have_one_id_and_others_do_not() -> None:
    lines = made("city", 1000)
    ids = parse("city", [*lines, lines[0]])["msgid"].to_pylist()
    assert (len(set(ids)), ids[0]) == (1000, ids[-1])
    assert parse("city", lines[:1])["msgid"].to_pylist() == ids[:1], "wherever it is parsed"


@pytest.mark.parametrize(("name", "senders"), [("city", 2162), ("taxi", 9302), ("fit", 10)])
def test_the_real_metadata_knows_all_senders_of_the_real_sample(name: str, senders: int, data: Path) -> None:
    known = DATASETS[name]
    assert known.metadata is not None
    table = read_metadata(known, data / known.metadata)
    assert table.num_rows == senders == known.sensors
    assert set(frame(name, real(name, data))[known.id_field]) <= set(table[known.id_field].to_pylist())
    assert table.schema == made_metadata(known, 5, 1).schema, "that of made senders has the same columns"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a:ngh,solar\nb:ngh\n", "line 2: 'b:ngh' is not source:location,type"),
        (b"a,ngh,solar\n", "line 1: 'a,ngh,solar' is not"),
        (b"\xff\xfe", "is not text in UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_metadata_that_is_none_is_told(content: bytes | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "metadata.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as told:
        read_metadata(DATASETS["city"], path)
    assert sentence in str(told.value)


def test_a_generator_travels(tmp_path: Path) -> None:
    made_here = MadeLines("taxi", sensors=7, seed=3)
    assert pickle.loads(pickle.dumps(made_here))(5, 3).equals(made_here(5, 3))
    assert not MadeLines("taxi", sensors=7, seed=4)(5, 3).equals(made_here(5, 3))


def test_real_messages_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no file .*SYS_sample_data_senml\.csv"):
        real_lines(DATASETS["city"], tmp_path, rate=None, loop=False)
    with pytest.raises(ConfigError, match="no real messages of grid are public"):
        real_lines(DATASETS["grid"], tmp_path, rate=None, loop=False)
    with pytest.raises(ConfigError, match="no data set 'mars'; there are city, taxi, fit, grid"):
        dataset("mars")
    with pytest.raises(ConfigError, match="taxi has no ranges 'edgewise'; it has riot"):
        dataset("taxi").ranges_of("edgewise")
