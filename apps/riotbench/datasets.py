"""The four data sets of RIoTBench: what a message has, and what the applications do with each field.

The values are those of the benchmark's own property files, where these agree with one another. They do not for CITY,
whose join counts five fields where a message has nine, and for GRID, whose filter checks a field that is never checked;
there a message's fields are divided as EdgeWise divides those of CITY: time and place go along (`meta`), the rest,
with the sensor's id, is observed.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

import headwater as hw

Kind = Literal["v", "sv"]  # as in SenML: a number, or a text
DatasetName = Literal["city", "taxi", "fit", "grid"]
RangesName = Literal["riot", "edgewise"]

TIMESTAMP: Final = "timestamp"  # the one field that is not an entry of the message: its base time, in milliseconds
MESSAGE_ID: Final = "msgid"  # is not in the message at all: parsing makes it


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message."""

    name: str
    unit: str
    kind: Kind

    @property
    def type(self) -> pa.DataType:
        """What its column holds."""
        if self.name == TIMESTAMP:
            return pa.int64()
        return pa.float64() if self.kind == "v" else pa.string()


@dataclass(frozen=True, slots=True)
class Range:
    """The values of a field that are believed; bounds belong to it."""

    field: str
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """One data set, with the parameters that the benchmark runs its applications with."""

    name: DatasetName
    fields: tuple[Field, ...]  # in the order of the benchmark's schema file
    id_field: str  # whose value says which sensor, taxi, person or meter it is
    meta: tuple[str, ...]  # fields that go along with each observation
    ranges: Mapping[str, tuple[Range, ...]] = dataclasses.field(hash=False)  # by the name of who chose them
    bloom_field: str | None  # whose values must be known ones
    interpolated: tuple[str, ...]
    interpolation_window: int  # how many values a missing one is estimated from; 0: missing values stay missing
    annotations: tuple[Field, ...]  # what is known of each id
    average_window: int
    prediction_horizon: int
    chart_values: int  # how many values are gathered before they are drawn
    charts_per_archive: int
    topic: str  # where results are published
    sensors: int  # how many there are in the original
    base_time_is_text: bool = False
    sample: str | None = None  # the real messages, below a directory of real data,
    metadata: str | None = None  # and what is known of the ids in them

    @property
    def observed(self) -> tuple[Field, ...]:
        """The fields that make a row each when a message is taken apart."""
        return tuple(field for field in self.fields if field.name not in self.meta)

    @property
    def measured(self) -> tuple[str, ...]:
        """The observed fields that are numbers: what statistics are made of."""
        return tuple(field.name for field in self.observed if field.kind == "v")

    @property
    def schema(self) -> pa.Schema:
        """The columns of a parsed message: its own id, then its fields."""
        return pa.schema([(MESSAGE_ID, pa.int64()), *((field.name, field.type) for field in self.fields)])

    def field(self, name: str) -> Field:
        """Return a field by its name."""
        return next(field for field in (*self.fields, *self.annotations) if field.name == name)

    def ranges_of(self, chosen_by: str) -> tuple[Range, ...]:
        """Return the ranges that somebody chose."""
        try:
            return self.ranges[chosen_by]
        except KeyError:
            known = ", ".join(self.ranges)
            raise hw.ConfigError(f"the data set {self.name} has no ranges {chosen_by!r}; it has {known}") from None


def _fields(written: str) -> tuple[Field, ...]:
    """Return the fields that a text lists as `name:unit:kind`, separated by blanks."""
    parts = (one.split(":") for one in written.split())
    return tuple(Field(name, unit, "sv" if kind == "sv" else "v") for name, unit, kind in parts)


def _ranges(written: str) -> tuple[Range, ...]:
    """Return the ranges that a text lists as the benchmark's property files do: `field:low:high,...`."""
    parts = (one.split(":") for one in written.split(","))
    return tuple(Range(name, float(low), float(high)) for name, low, high in parts)


_AXES: Final = ("x", "y", "z")
_FIT_CONTEXT: Final = tuple(
    f"{sensor}_{place}_{axis}" for place in ("ankle", "arm") for sensor in ("gyro", "magnetometer") for axis in _AXES
)

CITY: Final = Dataset(
    name="city",  # the benchmark's files also call it SYS
    fields=_fields(
        "timestamp:timestamp:sv source:string:sv longitude:lon:v latitude:lat:v temperature:far:v humidity:per:v "
        "light:per:v dust:per:v airquality_raw:per:v"
    ),
    id_field="source",
    meta=("timestamp", "longitude", "latitude"),
    ranges={
        "riot": _ranges(
            "temperature:-12.5:43.1,humidity:10.7:95.2,light:1345:26282,dust:186.61:5188.21,airquality_raw:17:363"
        ),
        "edgewise": _ranges(
            "temperature:0.7:35.1,humidity:20.3:69.1,light:0:5153,dust:83.36:3322.67,airquality_raw:12:49"
        ),
    },
    bloom_field="source",
    interpolated=("temperature", "humidity", "light", "dust", "airquality_raw"),
    interpolation_window=5,
    annotations=_fields("location:string:sv type:string:sv"),
    average_window=5,
    prediction_horizon=10,
    chart_values=20,
    charts_per_archive=100,
    topic="citydata",
    sensors=2162,
    sample="sys/SYS_sample_data_senml.csv",
    metadata="sys/city-metadata.txt",
)

TAXI: Final = Dataset(
    name="taxi",
    fields=_fields(
        "taxi_identifier:string:sv hack_license:string:sv pickup_datetime:time:sv timestamp:timestamp:sv "
        "trip_time_in_secs:second:v trip_distance:meter:v pickup_longitude:lon:sv pickup_latitude:lat:sv "
        "dropoff_longitude:lon:sv dropoff_latitude:lat:sv payment_type:string:sv fare_amount:dollar:v "
        "surcharge:percentage:v mta_tax:percentage:v tip_amount:dollar:v tolls_amount:dollar:v total_amount:dollar:v"
    ),
    id_field="taxi_identifier",
    meta=(
        "pickup_datetime",
        "timestamp",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
        "payment_type",
    ),
    ranges={
        "riot": _ranges(
            "trip_time_in_secs:140:3155,trip_distance:1.37:29.86,fare_amount:6:201,tip_amount:0.65:38.55,"
            "tolls_amount:2.5:18"
        )
    },
    bloom_field="taxi_identifier",
    interpolated=("trip_time_in_secs", "trip_distance"),
    interpolation_window=0,
    annotations=_fields("taxi_company:string:sv drivername:string:sv taxi_city:string:sv"),
    average_window=10,
    prediction_horizon=10,
    chart_values=10,
    charts_per_archive=10,
    topic="taxidata",
    sensors=9302,
    sample="taxi/TAXI_sample_data_senml.csv",
    metadata="taxi/taxi-metadata-fulldataset.txt",
)

_FIT_RANGES: Final = _ranges(
    "acc_chest_x:-13.931:4.123,acc_chest_y:-4.6376:5.2361,acc_chest_z:-8.1881:7.8786,ecg_lead_1:-4.9314:6.1371,"
    "ecg_lead_2:-6.786:6.6604,acc_ankle_x:-5.0006:8.1472,acc_ankle_y:-14.303:1.5909,acc_ankle_z:-8.6234:8.6958,"
    "acc_arm_x:-9.824:5.5778,acc_arm_y:-10.059:8.506,acc_arm_z:-6.6739:9.5725"
)

FIT: Final = Dataset(
    name="fit",
    fields=_fields(
        "subjectId:string:sv timestamp:timestamp:v acc_chest_x:m/s2:v acc_chest_y:m/s2:v acc_chest_z:m/s2:v "
        "ecg_lead_1:mV:v ecg_lead_2:mV:v acc_ankle_x:m/s2:v acc_ankle_y:m/s2:v acc_ankle_z:m/s2:v "
        "gyro_ankle_x:deg/s:v gyro_ankle_y:deg/s:v gyro_ankle_z:deg/s:v magnetometer_ankle_x:tesla:v "
        "magnetometer_ankle_y:tesla:v magnetometer_ankle_z:tesla:v acc_arm_x:m/s2:v acc_arm_y:m/s2:v "
        "acc_arm_z:m/s2:v gyro_arm_x:deg/s:v gyro_arm_y:deg/s:v gyro_arm_z:deg/s:v magnetometer_arm_x:tesla:v "
        "magnetometer_arm_y:tesla:v magnetometer_arm_z:tesla:v label:number:v"
    ),
    id_field="subjectId",
    meta=("subjectId", "timestamp", *_FIT_CONTEXT, "label"),
    ranges={"riot": _FIT_RANGES},
    bloom_field=None,
    interpolated=tuple(known.field for known in _FIT_RANGES),
    interpolation_window=5,
    annotations=_fields("age:number:v gender:string:sv"),
    average_window=10,
    prediction_horizon=10,
    chart_values=20,
    charts_per_archive=10,
    topic="fitdata",
    sensors=10,
    base_time_is_text=True,
    sample="fit/FIT_sample_data_senml.csv",
    metadata="fit/mhealth_annotation_mapping.csv",
)

GRID: Final = Dataset(
    name="grid",
    fields=_fields("timestamp:timestamp:v meterid:string:sv energyconsumed:kwh:v"),
    id_field="meterid",
    meta=("timestamp",),
    ranges={"riot": _ranges("energyconsumed:1.828:36.658")},
    bloom_field="meterid",
    interpolated=("energyconsumed",),
    interpolation_window=5,
    annotations=_fields("customer:string:sv tariff:string:sv"),  # of the study's meters; the benchmark's are not public
    average_window=10,
    prediction_horizon=2,
    chart_values=8000,
    charts_per_archive=50,
    topic="griddata",
    sensors=6435,
)

DATASETS: Final[Mapping[str, Dataset]] = {dataset.name: dataset for dataset in (CITY, TAXI, FIT, GRID)}


def dataset(name: str) -> Dataset:
    """Return a data set by its name."""
    try:
        return DATASETS[name]
    except KeyError:
        raise hw.ConfigError(f"there is no data set {name!r}; there are {', '.join(DATASETS)}") from None
