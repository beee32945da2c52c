"""One SenML pack in JSON: from its text to resolved records, and back (RFC 8428, sections 4 and 5).

Base fields apply to their record and all later ones. A record that has only base fields just sets them, as in the RFC's
own example 5.1.7; every other record is one measurement. What the RFC tells a reader to refuse is refused: unknown
fields that end in `_`, versions above 10, names of other characters, two values in a record, none.
"""

import base64
import binascii
import math
import re
from typing import Any, Final, NamedTuple

import orjson

from headwater.model.errors import HeadwaterError
from headwater.model.quoting import brief, quoted
from headwater.model.time import SECOND

VERSION: Final = 10  # of the format, as RFC 8428 defines it
RELATIVE_BELOW_S: Final = 1 << 28  # smaller times are relative to now, others count from 1970
TIME_S_MAX: Final = 253_402_300_799  # the end of the year 9999, the last that Python and Arrow both can show

_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9:./_]*")
_BASE64URL: Final = re.compile(r"[-_A-Za-z0-9]*")
_TEXTS: Final = frozenset({"bn", "bu", "n", "u", "vs", "vd"})
_NUMBERS: Final = frozenset({"bt", "bv", "bs", "v", "s", "t", "ut"})
_VALUES: Final = ("v", "vs", "vb", "vd")
_BASES: Final = frozenset({"bn", "bt", "bu", "bv", "bs", "bver"})
_KNOWN: Final = _TEXTS | _NUMBERS | _BASES | {"vb"}


class SenmlError(HeadwaterError):
    """A text is no SenML pack, or rows cannot be written as one."""


class SenmlRecord(NamedTuple):
    """A resolved record: one measurement. In the order of the columns."""

    name: str
    unit: str | None
    time_us: int
    value: float | None
    string_value: str | None
    bool_value: bool | None
    data_value: bytes | None
    sum: float | None
    update_time: float | None


def resolved(pack: bytes | str, now_us: int | None) -> list[SenmlRecord]:
    """Return the measurements of a pack; relative times need `now_us`."""
    try:
        records: Any = orjson.loads(pack)
    except orjson.JSONDecodeError as failure:
        raise SenmlError(f"is not JSON: {failure}") from None
    if not isinstance(records, list):
        raise SenmlError(f"is a JSON {type(records).__name__}; a SenML pack is an array of records")
    base: dict[str, Any] = {}
    found: list[SenmlRecord] = []
    for number, fields in enumerate(records, 1):
        try:
            _check(fields, base if number > 1 else None)
            base.update((label, fields[label]) for label in _BASES & fields.keys())
            if not fields.keys() & _KNOWN <= _BASES:
                found.append(_resolved(fields, base, now_us))
        except SenmlError as failure:
            raise SenmlError(f"is not SenML: record {number} {failure}") from None
    return found


def _check(fields: Any, base: dict[str, Any] | None) -> None:
    """Refuse what RFC 8428 does not allow in a record; `base` is None for the first one."""
    if not isinstance(fields, dict):
        raise SenmlError(f"is a JSON {type(fields).__name__}, not an object")
    for label, value in fields.items():
        if label in _NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise SenmlError(f"has {quoted(value)} in {quoted(label)}, which is not a number")
        elif label in _TEXTS:
            if not isinstance(value, str):
                raise SenmlError(f"has {quoted(value)} in {quoted(label)}, which is not a string")
        elif label == "vb":
            if not isinstance(value, bool):
                raise SenmlError(f"has {quoted(value)} in 'vb', which is not true or false")
        elif label == "bver":
            _check_version(value, base)
        elif label.endswith("_"):
            raise SenmlError(f"has a field {quoted(label)}, which must be understood and is not known here")


def _check_version(version: Any, base: dict[str, Any] | None) -> None:
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise SenmlError(f"has version {quoted(version)}, which is not a whole number above 0")
    if version > VERSION:
        raise SenmlError(f"has version {version}; only up to {VERSION} is known here")
    if base is not None and version != base.get("bver", VERSION):
        raise SenmlError(f"has version {version}, the ones before have {base.get('bver', VERSION)}")


def _resolved(fields: dict[str, Any], base: dict[str, Any], now_us: int | None) -> SenmlRecord:
    name = base.get("bn", "") + fields.get("n", "")
    if _NAME.fullmatch(name) is None:
        raise SenmlError(
            f"is named {quoted(name)}; a name begins with a letter or digit, and has only these and - : . / _"
        )
    values = [label for label in _VALUES if label in fields]
    if len(values) > 1:
        raise SenmlError(f"has {quoted(values[0])} and {quoted(values[1])}; a record has one value")
    has_sum = "s" in fields or "bs" in base
    if not values and not has_sum and "bv" not in base:
        raise SenmlError("has no value and no sum")
    has_number = "v" in fields or (not values and "bv" in base)
    return SenmlRecord(
        name,
        fields.get("u", base.get("bu")),
        _time_us(base.get("bt", 0) + fields.get("t", 0), now_us),
        _sum(base.get("bv", 0), fields.get("v", 0), "value") if has_number else None,
        fields.get("vs"),
        fields.get("vb"),
        _data(fields["vd"]) if "vd" in fields else None,
        _sum(base.get("bs", 0), fields.get("s", 0), "sum") if has_sum else None,
        float(fields["ut"]) if "ut" in fields else None,
    )


def _sum(base: float, own: float, what: str) -> float:
    total = float(base) + float(own)
    if not math.isfinite(total):
        raise SenmlError(f"has a {what} beyond what a number can hold")
    return total


def _time_us(time_s: float, now_us: int | None) -> int:
    if not -TIME_S_MAX <= time_s <= TIME_S_MAX:
        raise SenmlError(f"has time {quoted(time_s)}, which is not within the years 1 to 9999")
    time_us = round(time_s * SECOND)
    if time_s >= RELATIVE_BELOW_S:
        return time_us
    if now_us is None:
        raise SenmlError("has a time relative to now; say when that is with now=")
    if not 0 <= now_us + time_us <= TIME_S_MAX * SECOND:
        raise SenmlError(f"has time {quoted(time_s)} relative to now, which is before 1970 or after 9999")
    return now_us + time_us


def _data(text: str) -> bytes:
    try:
        if _BASE64URL.fullmatch(text) is None:
            raise binascii.Error("it has other characters")
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as failure:
        raise SenmlError(f"has {quoted(text)} in 'vd', which is not base64url without padding: {failure}") from None


def written(record: SenmlRecord) -> dict[str, Any]:
    """Return a record in its JSON form; raises if SenML has none for it."""
    if _NAME.fullmatch(record.name) is None:
        raise SenmlError(
            f"the name {quoted(record.name)} cannot be written; "
            "it begins with a letter or digit, and has only these and - : . / _"
        )
    data = None if record.data_value is None else base64.urlsafe_b64encode(record.data_value).rstrip(b"=").decode()
    values = {"v": record.value, "vs": record.string_value, "vb": record.bool_value, "vd": data}
    given = [label for label, value in values.items() if value is not None]
    if len(given) > 1 or (not given and record.sum is None):
        raise SenmlError(f"the record of {brief(record.name)} has {len(given)} values; SenML wants one, or a sum")
    numbers = (record.value, record.sum, record.update_time)
    if not all(number is None or math.isfinite(number) for number in numbers):
        raise SenmlError(f"the record of {brief(record.name)} has a number that is not finite, which JSON cannot hold")
    if record.time_us < RELATIVE_BELOW_S * SECOND:
        raise SenmlError(f"the record of {brief(record.name)} is older than 1978-07-04, which SenML cannot write")
    fields = {"n": record.name, "u": record.unit, "t": record.time_us / SECOND, **values}
    fields |= {"s": record.sum, "ut": record.update_time}
    return {label: value for label, value in fields.items() if value is not None}
