"""SenML against the examples of RFC 8428, against itself, and against garbage."""

import datetime as dt
import json
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater as hw
from headwater.connectors.senml import decode_packs
from headwater.connectors.senml_packs import RELATIVE_BELOW_S, SenmlError
from tests.connectors.polls import batch_of

NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)
NOW_US = round(NOW.timestamp() * 1_000_000)
OW = "urn:dev:ow:10e2073a01080063"


def decoded(pack: str, **how: Any) -> list[dict[str, Any]]:
    """Return the rows of a pack, without what is null in them."""
    rows = hw.senml.decode(batch_of(line=[pack]), **{"now": NOW, **how}).to_pylist()
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def at(seconds: float) -> dt.datetime:
    """Return an instant."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=round(seconds * 1_000_000))


def resolved(text: str) -> list[dict[str, Any]]:
    """Return rows of a pack that is written resolved, by a reader too simple to be wrong."""
    columns = {"n": "name", "u": "unit", "v": "value", "vs": "string_value", "vb": "bool_value"}
    return [
        {columns[label]: value for label, value in record.items() if label != "t"} | {"time": at(record["t"])}
        for record in orjson.loads(text)
    ]


def test_5_1_1_a_single_data_point_taken_about_now() -> None:
    assert decoded('[{"n":"urn:dev:ow:10e2073a01080063","u":"Cel","v":23.1}]') == [
        {"name": OW, "unit": "Cel", "time": NOW, "value": 23.1}
    ]


def test_5_1_2_multiple_data_points_share_a_base_name() -> None:
    pack = """[
        {"bn":"urn:dev:ow:10e2073a01080063:","n":"voltage","u":"V","v":120.1},
        {"n":"current","u":"A","v":1.2}
    ]"""
    assert decoded(pack) == [
        {"name": f"{OW}:voltage", "unit": "V", "time": NOW, "value": 120.1},
        {"name": f"{OW}:current", "unit": "A", "time": NOW, "value": 1.2},
    ]


def test_5_1_2_times_count_from_a_base_time_and_an_older_version_is_read() -> None:
    pack = """[
        {"bn":"urn:dev:ow:10e2073a0108006:","bt":1.276020076001e+09,"bu":"A","bver":5,"n":"voltage","u":"V","v":120.1},
        {"n":"current","t":-5,"v":1.2},
        {"n":"current","t":-4,"v":1.3},
        {"n":"current","t":-3,"v":1.4},
        {"n":"current","t":-2,"v":1.5},
        {"n":"current","t":-1,"v":1.6},
        {"n":"current","v":1.7}
    ]"""
    voltage, *currents = decoded(pack, now=None)
    device = "urn:dev:ow:10e2073a0108006:"
    assert voltage == {"name": f"{device}voltage", "unit": "V", "time": at(1276020076.001), "value": 120.1}
    assert currents == [
        {"name": f"{device}current", "unit": "A", "time": at(1276020076.001 + t), "value": value}
        for t, value in zip(range(-5, 1), (1.2, 1.3, 1.4, 1.5, 1.6, 1.7), strict=True)
    ]


def test_5_1_3_multiple_measurements_resolve_to_what_5_1_4_shows() -> None:
    pack = """[
        {"bn":"urn:dev:ow:10e2073a01080063","bt":1.320067464e+09,"bu":"%RH","v":20},
        {"u":"lon","v":24.30621}, {"u":"lat","v":60.07965},
        {"t":60,"v":20.3}, {"u":"lon","t":60,"v":24.30622}, {"u":"lat","t":60,"v":60.07965},
        {"t":120,"v":20.7}, {"u":"lon","t":120,"v":24.30623}, {"u":"lat","t":120,"v":60.07966},
        {"u":"%EL","t":150,"v":98},
        {"t":180,"v":21.2}, {"u":"lon","t":180,"v":24.30628}, {"u":"lat","t":180,"v":60.07967}
    ]"""
    shown = """[
        {"n":"urn:dev:ow:10e2073a01080063","u":"%RH","t":1.320067464e+09,"v":20},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lon","t":1.320067464e+09,"v":24.30621},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lat","t":1.320067464e+09,"v":60.07965},
        {"n":"urn:dev:ow:10e2073a01080063","u":"%RH","t":1.320067524e+09,"v":20.3},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lon","t":1.320067524e+09,"v":24.30622},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lat","t":1.320067524e+09,"v":60.07965},
        {"n":"urn:dev:ow:10e2073a01080063","u":"%RH","t":1.320067584e+09,"v":20.7},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lon","t":1.320067584e+09,"v":24.30623},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lat","t":1.320067584e+09,"v":60.07966},
        {"n":"urn:dev:ow:10e2073a01080063","u":"%EL","t":1.320067614e+09,"v":98},
        {"n":"urn:dev:ow:10e2073a01080063","u":"%RH","t":1.320067644e+09,"v":21.2},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lon","t":1.320067644e+09,"v":24.30628},
        {"n":"urn:dev:ow:10e2073a01080063","u":"lat","t":1.320067644e+09,"v":60.07967}
    ]"""
    assert decoded(pack, now=None) == decoded(shown, now=None) == resolved(shown)


def test_5_1_5_values_are_numbers_texts_truths_and_data() -> None:
    pack = """[
        {"bn":"urn:dev:ow:10e2073a01080063:","n":"temp","u":"Cel","v":23.1},
        {"n":"label","vs":"Machine Room"}, {"n":"open","vb":false}, {"n":"nfv-reader","vd":"aGkgCg"}
    ]"""
    assert decoded(pack) == [
        {"name": f"{OW}:temp", "unit": "Cel", "time": NOW, "value": 23.1},
        {"name": f"{OW}:label", "time": NOW, "string_value": "Machine Room"},
        {"name": f"{OW}:open", "time": NOW, "bool_value": False},
        {"name": f"{OW}:nfv-reader", "time": NOW, "data_value": b"hi \n"},
    ]


def test_5_1_6_a_later_base_name_replaces_the_first_and_the_base_time_stays() -> None:
    pack = """[
        {"bn":"2001:db8::2/","bt":1.320078429e+09,"n":"temperature","u":"Cel","v":25.2},
        {"n":"humidity","u":"%RH","v":30},
        {"bn":"2001:db8::1/","n":"temperature","u":"Cel","v":12.3},
        {"n":"humidity","u":"%RH","v":67}
    ]"""
    assert decoded(pack, now=None) == [
        {"name": f"2001:db8::{device}/{what}", "unit": unit, "time": at(1320078429), "value": value}
        for device, what, unit, value in (
            (2, "temperature", "Cel", 25.2),
            (2, "humidity", "%RH", 30),
            (1, "temperature", "Cel", 12.3),
            (1, "humidity", "%RH", 67),
        )
    ]


def test_5_1_7_a_record_of_base_fields_alone_is_no_measurement() -> None:
    pack = """[
        {"bn":"urn:dev:ow:10e2073a01080063:"},
        {"n":"temp","u":"Cel","v":23.1}, {"n":"heat","u":"/","v":1}, {"n":"fan","u":"/","v":0}
    ]"""
    found = [(row["name"], row["unit"], row["value"]) for row in decoded(pack)]
    assert found == [(f"{OW}:temp", "Cel", 23.1), (f"{OW}:heat", "/", 1), (f"{OW}:fan", "/", 0)]


def test_5_1_7_lights_are_dimmed_and_a_tenth_of_a_second_later_off() -> None:
    pack = """[
        {"bt":1.320078429e+09,"bu":"/","n":"2001:db8::3","v":0.5}, {"n":"2001:db8::4","v":0.5},
        {"n":"2001:db8::3","t":0.1,"v":0}, {"n":"2001:db8::4","t":0.1,"v":0}
    ]"""
    assert [(row["name"][-1], row["time"], row["value"]) for row in decoded(pack, now=None)] == [
        ("3", at(1320078429), 0.5),
        ("4", at(1320078429), 0.5),
        ("3", at(1320078429.1), 0),
        ("4", at(1320078429.1), 0),
    ]


@pytest.mark.parametrize(
    ("pack", "row"),
    [
        ('[{"n":"a","bv":20,"v":1.5}]', {"value": 21.5}),
        ('[{"n":"a","bv":20}]', {"value": 20.0}),  # section 4.5.4: a value that is missing counts as zero
        ('[{"n":"a","bv":20,"vs":"x"}]', {"string_value": "x"}),
        ('[{"n":"a","bs":100,"s":5,"v":1}]', {"value": 1.0, "sum": 105.0}),
        ('[{"n":"a","s":5}]', {"sum": 5.0}),
        ('[{"n":"a","bs":7}]', {"sum": 7.0}),
        ('[{"n":"a","v":1,"ut":30}]', {"value": 1.0, "update_time": 30.0}),
        ('[{"n":"a","v":1,"unknown":{"x":[1]}}]', {"value": 1.0}),
        ('[{"n":"a","vd":""}]', {"data_value": b""}),
        ('[{"n":"a","vd":"_-8"}]', {"data_value": b"\xff\xef"}),
        ('[{"n":"a","v":1,"t":-2.5}]', {"value": 1.0, "time": NOW - dt.timedelta(seconds=2.5)}),
        ('[{"n":"a","v":1,"t":3600}]', {"value": 1.0, "time": NOW + dt.timedelta(hours=1)}),
        ('[{"n":"a","v":1,"t":268435455}]', {"value": 1.0, "time": NOW + dt.timedelta(seconds=268435455)}),
        ('[{"n":"a","v":1,"t":268435456}]', {"value": 1.0, "time": at(RELATIVE_BELOW_S)}),
        ('[{"n":"a","v":1,"bver":10}]', {"value": 1.0}),
    ],
)
def test_fields_are_resolved(pack: str, row: dict[str, Any]) -> None:
    assert decoded(pack) == [{"name": "a", "time": NOW, **row}]


@pytest.mark.parametrize(
    ("pack", "told"),
    [
        ("", "is not JSON"),
        ("[", "is not JSON"),
        ("null", "a SenML pack is an array of records"),
        ('{"n":"a","v":1}', "is a JSON dict; a SenML pack is an array"),
        ("[1]", "record 1 is a JSON int, not an object"),
        ('[{"n":"a","v":1},{"n":"b","v":"2"}]', "record 2 has '2' in 'v', which is not a number"),
        ('[{"n":"a","v":true}]', "has True in 'v', which is not a number"),
        ('[{"n":"a","t":null,"v":1}]', "has None in 't', which is not a number"),
        ('[{"n":1,"v":1}]', "has 1 in 'n', which is not a string"),
        ('[{"n":"a","vs":1}]', "has 1 in 'vs', which is not a string"),
        ('[{"n":"a","vb":0}]', "has 0 in 'vb', which is not true or false"),
        ('[{"n":"a","vd":"aGk="}]', "which is not base64url without padding"),
        ('[{"n":"a","vd":"a+/b"}]', "which is not base64url without padding"),
        ('[{"n":"a","vd":"a"}]', "which is not base64url without padding"),
        ('[{"n":"a"}]', "has no value and no sum"),
        ('[{"v":1}]', "is named ''; a name begins with a letter or digit"),
        ('[{"n":"-a","v":1}]', "is named '-a'"),
        ('[{"bn":"_","n":"a","v":1}]', "is named '_a'"),
        ('[{"n":"a b","v":1}]', "is named 'a b'"),
        ('[{"n":"ä","v":1}]', "is named 'ä'"),
        ('[{"n":"a","v":1,"vs":"x"}]', "has 'v' and 'vs'; a record has one value"),
        ('[{"n":"a","v":1,"new_":2}]', "has a field 'new_', which must be understood"),
        ('[{"bver":11,"n":"a","v":1}]', "has version 11; only up to 10 is known here"),
        ('[{"bver":0,"n":"a","v":1}]', "has version 0, which is not a whole number above 0"),
        ('[{"bver":"5","n":"a","v":1}]', "has version '5'"),
        ('[{"n":"a","v":1},{"bver":5,"n":"a","v":1}]', "record 2 has version 5, the ones before have 10"),
        ('[{"n":"a","v":1e308,"bv":1e308}]', "has a value beyond what a number can hold"),
        ('[{"n":"a","v":1,"t":1e300}]', "which is not within the years"),
        ('[{"n":"a","v":1,"t":-1e11}]', "which is before 1970 or after 9999"),
    ],
)
def test_what_is_no_pack_is_refused_with_the_record_and_the_reason(pack: str, told: str) -> None:
    with pytest.raises(SenmlError) as refused:
        decoded(pack)
    assert told in str(refused.value)
    assert "column 'line'" in str(refused.value)


def test_a_relative_time_needs_to_be_told_when_now_is() -> None:
    with pytest.raises(SenmlError, match="say when that is with now="):
        decoded('[{"n":"a","v":1}]', now=None)
    with pytest.raises(SenmlError, match="has no time zone"):
        decoded("[]", now=dt.datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


def test_other_columns_are_repeated_and_now_may_be_one_of_them() -> None:
    batch = batch_of(
        room=["a", "b", "c"],
        raw=['[{"n":"x","v":1},{"n":"y","v":2}]', "[]", '[{"n":"z","v":3,"t":-1}]'],
        seen=pa.array([NOW, NOW, NOW + dt.timedelta(seconds=5)], pa.timestamp("ms", "UTC")),
    )
    found = hw.senml.decode(batch, "raw", now="seen").select(["room", "name", "time"]).to_pylist()
    assert found == [
        {"room": "a", "name": "x", "time": NOW},
        {"room": "a", "name": "y", "time": NOW},
        {"room": "c", "name": "z", "time": NOW + dt.timedelta(seconds=4)},
    ]


@pytest.mark.parametrize(
    ("columns", "how", "told"),
    [
        ({"text": ["[]"]}, {}, "there is no column 'line', only: text"),
        ({"line": ["[]"], "name": ["x"]}, {}, "column 'name' has the name of a SenML column"),
        ({"line": ["[]"]}, {"now": "seen"}, "now='seen' is no column"),
        ({"line": ["[]"], "seen": [1]}, {"now": "seen"}, "now='seen' is int64, not a timestamp"),
        ({"line": [None]}, {}, "a SenML pack is an array"),
    ],
)
def test_columns_that_do_not_fit_are_told(columns: dict[str, Any], how: dict[str, Any], told: str) -> None:
    with pytest.raises(SenmlError, match=told):
        hw.senml.decode(batch_of(**columns), **how)


def test_packs_are_decoded_in_a_flow_and_what_is_none_is_a_dead_letter() -> None:
    lines = ['[{"bn":"r/","bt":1.6e9,"n":"a","v":1},{"n":"b","v":2}]', "no pack", '[{"n":"c","t":1.7e9,"vb":true}]']
    good, bad = hw.to.memory(), hw.to.memory()
    packs = hw.read.iterable([{"line": line} for line in lines])
    rows = packs.flat_map(hw.senml.decode, on_error="dead-letter")
    hw.run(hw.flow("packs", rows.sink(good), rows.errors.sink(bad)), spark=False)
    assert [row["name"] for row in good.rows()] == ["r/a", "r/b", "c"]
    [letter] = bad.rows()
    assert "is not JSON" in letter["error"]


# Names that SenML allows, and values that survive JSON and microseconds.
NAMES = st.from_regex(r"\A[A-Za-z0-9][-A-Za-z0-9:./_]{0,20}\Z")
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.integers(RELATIVE_BELOW_S * 1_000_000, 4_000_000_000 * 1_000_000)
VALUES = st.one_of(
    FLOATS.map(lambda value: {"value": value}),
    st.text(st.characters(codec="utf-8"), max_size=20).map(lambda value: {"string_value": value}),
    st.booleans().map(lambda value: {"bool_value": value}),
    st.binary(max_size=20).map(lambda value: {"data_value": value}),
    FLOATS.map(lambda value: {"sum": value}),
)
ROWS = st.builds(
    lambda name, unit, time_us, value, more: {"name": name, "unit": unit, "time": time_us, **more, **value},
    NAMES,
    st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
    TIMES,
    VALUES,
    st.fixed_dictionaries({}, optional={"sum": FLOATS, "update_time": FLOATS}),
)


@given(st.lists(ROWS, max_size=8))
def test_rows_that_are_encoded_and_decoded_are_the_same(rows: list[dict[str, Any]]) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=hw.senml.SCHEMA)
    assert hw.senml.decode(batch_of(line=[hw.senml.encode(batch)])).equals(batch)
    each = decode_packs(hw.senml.encode_rows(batch), NOW_US)
    assert each.batch.equals(batch)
    assert each.origins.tolist() == list(range(len(rows)))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"name": "a b", "time": NOW, "value": 1.0}, "the name 'a b' cannot be written"),
        ({"name": None, "time": NOW, "value": 1.0}, "column 'name' is null"),
        ({"name": "a", "time": None, "value": 1.0}, "column 'time' is null"),
        ({"name": "a", "time": NOW}, "has 0 values; SenML wants one, or a sum"),
        ({"name": "a", "time": NOW, "value": 1.0, "bool_value": True}, "has 2 values"),
        ({"name": "a", "time": NOW, "value": float("nan")}, "is not finite"),
        ({"name": "a", "time": at(1), "value": 1.0}, "is older than 1978-07-04"),
    ],
)
def test_rows_that_senml_has_no_form_for_are_refused(row: dict[str, Any], told: str) -> None:
    with pytest.raises(SenmlError, match=told):
        hw.senml.encode(pa.RecordBatch.from_pylist([row], schema=hw.senml.SCHEMA))


def test_columns_that_senml_has_no_form_for_are_refused() -> None:
    with pytest.raises(SenmlError, match="no column 'time' to write as SenML, only: name"):
        hw.senml.encode(batch_of(name=["a"]))
    with pytest.raises(SenmlError, match="column 'value' is string, not double"):
        hw.senml.encode(batch_of(name=["a"], time=[NOW], value=["high"]))
    with pytest.raises(SenmlError, match="column 'time' is int64"):
        hw.senml.encode(batch_of(name=["a"], time=[1], value=[1.0]))


LABELS = st.sampled_from(
    ["bn", "bt", "bu", "bv", "bs", "bver", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut", "x", "x_"]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def as_json(value: Any) -> bytes:
    """Write numbers of any size, NaN and what is no text, which orjson would not."""
    return json.dumps(value).encode()


PACKS = st.lists(st.dictionaries(LABELS, ANYTHING, max_size=6) | ANYTHING, max_size=4)


@given(st.lists(st.binary(max_size=60) | PACKS.map(as_json), max_size=5))
def test_garbage_gives_rows_or_reasons_and_nothing_else(packs: list[bytes]) -> None:
    found = decode_packs(packs, NOW_US)
    assert found.batch.schema.equals(hw.senml.SCHEMA)
    assert set(found.origins.tolist()).isdisjoint(found.bad)
    assert all(why.startswith(("is not ", "is a JSON ")) for why in found.bad.values())
