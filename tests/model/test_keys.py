"""Keys: equal values have equal bytes everywhere, different ones differ, and groups share them out evenly."""

import datetime as dt
import os
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.entries import KEY_BYTES_MAX, entry_of
from headwater.model.keys import KEY_GROUPS, WrongKey, decode_key, encode_key, group_of, keyed_rows, owner_of

BERLIN = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)

whole = st.integers(-(2**63), 2**64 - 1)
scalars = (
    st.none()
    | st.booleans()
    | whole
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.decimals(-(10**30), 10**30, places=8)
    | st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.just(dt.UTC))
    | st.times()
    | st.timedeltas()
)


@given(key=scalars | st.tuples(scalars, scalars) | st.tuples(scalars, scalars, scalars))
def test_a_key_comes_back_equal(key: Any) -> None:
    """A key of several columns as a tuple."""
    assert decode_key(encode_key(key)) == key
    assert type(decode_key(encode_key(key))) is tuple or not isinstance(key, tuple)


@given(one=scalars, other=scalars)
def test_keys_have_equal_bytes_exactly_if_they_are_equal(one: Any, other: Any) -> None:
    """A truth value is no number, though Python says True == 1."""
    same = one == other and isinstance(one, bool) == isinstance(other, bool)
    if {float, Decimal} != {type(one), type(other)}:  # a fraction has no exact decimal to be equal to
        assert (encode_key(one) == encode_key(other)) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.0, -0.0),
        (float("nan"), -float("nan")),
        (1, 1.0),
        (1, Decimal("1.00")),
        (Decimal("1.50"), Decimal("1.5")),
        (NOON, NOON.astimezone(BERLIN)),
        (1, np.int8(1)),
        (1.5, np.float64(1.5)),
        ((0.0, None), (-0.0, None)),
    ],
)
def test_what_is_equal_in_sql_is_one_key(one: Any, other: Any) -> None:
    """Whatever type a batch happens to have it in."""
    assert encode_key(one) == encode_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, "1"),
        (1, True),
        (0, False),
        (0, None),
        ("", None),
        ("", b""),
        (("a", "b"), "ab"),
        (("a", "bc"), ("ab", "c")),
        ((1,), 1),
        (dt.date(2024, 1, 1), "2024-01-01"),
        (dt.date(2024, 1, 1), dt.datetime.fromisoformat("2024-01-01T00:00")),
        (NOON, NOON.replace(tzinfo=None)),
        (Decimal("1.5"), "1.5"),
        (2**53, 2**53 + 1),
    ],
)
def test_what_differs_is_two_keys(one: Any, other: Any) -> None:
    """A number and its text, a date and its text, no value and an empty one."""
    assert encode_key(one) != encode_key(other)


@pytest.mark.parametrize("key", [[1], {"a": 1}, {1}, object(), 1j, (1, [2])], ids=lambda key: type(key).__name__)
def test_what_cannot_be_a_key_is_refused_with_a_sentence(key: Any) -> None:
    """Which says what can."""
    with pytest.raises(WrongKey, match="cannot be a key; use numbers, texts, bytes"):
        encode_key(key)


def test_the_bytes_of_a_key_are_written_down() -> None:
    """State on disk is found by them: a change here loses the state of every running app."""
    keys = [None, True, 7, -1.5, "née", b"x", ("a", 1), dt.date(2024, 1, 2), NOON, Decimal("1.5")]
    assert [encode_key(key).hex() for key in keys] == [
        "c0",
        "c3",
        "07",
        "cbbff8000000000000",
        "a46ec3a965",
        "c40178",
        "92a16101",
        "c70a11323032342d30312d3032",
        "c71910323032342d30312d30315431323a30303a30302b30303a3030",
        "c70314312e35",
    ]
    assert [group_of(encode_key(key)) for key in keys[:5]] == [420, 903, 921, 979, 998]


@pytest.mark.world
def test_keys_and_groups_are_the_same_in_every_process() -> None:
    """Whatever seed Python's hashes have."""
    code = "from headwater.model.keys import *; print(encode_key(('a', 1)).hex(), group_of(encode_key('sensor-1')))"
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"92a16101 {group_of(encode_key('sensor-1'))}\n"}


@pytest.mark.parametrize(
    "keys",
    [
        list(range(100)),
        list(range(100, 228)),
        [number * 64 for number in range(1_000)],
        [f"sensor-{number}" for number in range(100)],
        [f"taxi{number:04}" for number in range(1_000)],
        [number / 7 for number in range(500)],
        [("zone", number) for number in range(200)],
        [chr(ord("a") + first) + chr(ord("a") + second) for first in range(26) for second in range(26)],
    ],
    ids=["numbers", "more-numbers", "multiples", "sensors", "taxis", "fractions", "pairs", "letters"],
)
@pytest.mark.parametrize("instances", [2, 3, 4, 8])
def test_keys_are_shared_out_evenly(keys: list[Any], instances: int) -> None:
    """As evenly as by chance, also keys that look alike: chi-square far below what one case in a million exceeds."""
    owned = Counter(owner_of(group_of(encode_key(key)), instances) for key in keys)
    expected = len(keys) / instances
    chi_square = sum((owned[instance] - expected) ** 2 / expected for instance in range(instances))
    assert chi_square < instances - 1 + 6 * (2 * (instances - 1)) ** 0.5


def test_all_groups_are_used() -> None:
    """By many keys, none much more than others."""
    used = Counter(group_of(encode_key(f"key-{number}")) for number in range(100_000))
    assert set(used) == set(range(KEY_GROUPS))
    assert max(used.values()) < 1.8 * 100_000 / KEY_GROUPS


@given(instances=st.integers(1, KEY_GROUPS))
def test_ownership_is_contiguous_even_and_complete(instances: int) -> None:
    """Every instance owns one stretch of groups, as long as any other's, give or take one."""
    owners = [owner_of(group, instances) for group in range(KEY_GROUPS)]
    assert owners == sorted(owners)
    shares = Counter(owners)
    assert set(shares) == set(range(instances))
    assert max(shares.values()) - min(shares.values()) <= 1


@given(rows=st.lists(st.tuples(st.none() | st.integers(0, 3), st.none() | st.sampled_from("xy")), max_size=30))
def test_rows_are_told_by_key_in_order_of_appearance(rows: list[tuple[Any, Any]]) -> None:
    """As a dict would."""
    batch = pa.RecordBatch.from_pydict(
        {"a": pa.array([a for a, _ in rows], pa.int64()), "b": pa.array([b for _, b in rows], pa.string())}
    )
    both, single = keyed_rows(batch, ["a", "b"]), keyed_rows(batch, ["b"])
    assert [both.keys[code] for code in both.codes] == rows
    assert both.keys == list(dict.fromkeys(rows))
    assert [single.keys[code] for code in single.codes] == [b for _, b in rows]
    assert single.keys == list(dict.fromkeys(b for _, b in rows))


def test_keys_of_many_columns_with_many_values_are_not_mixed_up() -> None:
    """The product of the distinct values of six columns is beyond what 64 bits can number."""
    numbers = np.random.default_rng(3).permutation(6 * 3_000).reshape(6, 3_000)
    batch = pa.RecordBatch.from_pydict({f"c{index}": column for index, column in enumerate(numbers)})
    twice = pa.concat_batches([batch, batch])
    found = keyed_rows(twice, batch.schema.names)
    assert len(found.keys) == 3_000
    assert found.keys == [tuple(int(column[row]) for column in numbers) for row in range(3_000)]
    assert found.codes.tolist() == [*range(3_000), *range(3_000)]


def test_rows_without_key_columns_have_one_key() -> None:
    """Windows over all rows together are such."""
    found = keyed_rows(pa.record_batch({"a": [5, 6, 5]}), [])
    assert (found.keys, found.codes.tolist()) == ([()], [0, 0, 0])


def test_a_slice_has_the_keys_of_its_rows_only() -> None:
    """Also of a dictionary column, whose dictionary knows more."""
    batch = pa.record_batch({"k": pa.array(["a", "b", "c", "b"]).dictionary_encode()})
    assert keyed_rows(batch.slice(1), ["k"]).keys == ["b", "c"]


def test_a_long_key_is_found_by_its_hash() -> None:
    """LMDB takes 511 bytes; two long keys are still two."""
    one, other = (entry_of(1, 0, encode_key("x" * 5_000 + end)) for end in "ab")
    assert len(one) == len(other) < 511
    assert one != other
    assert len(entry_of(1, 0, b"k" * KEY_BYTES_MAX)) < 450
