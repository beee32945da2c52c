"""Made-up readings of body sensors, shaped like MHEALTH's (UCI), from which RIoTBench took FIT.

The published sample has three different messages only. Here ten people wear three sensors, sampled 50 times a second,
and change between the thirteen activities of MHEALTH every minute; accelerations swing about gravity with the
activity, the two ECG leads show a heart that beats with it, and jolts leave the ranges that RIoTBench believes.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..chance import normal, uniform, whole
from .datasets import FIT
from .identities import made_ids

Numbers = npt.NDArray[np.float64]

BEGIN_MS: Final = 1_417_890_600_000
TICK_MS: Final = 20
TICKS_PER_ACTIVITY: Final = 3000
ACTIVITIES: Final = 13  # and the label of each, 0 for none
JOLT_SHARE: Final = 0.03
JOLT: Final = 4.0  # times as far as the activity swings

# Of each channel: where it rests, and how far it swings, as in the first lines of two of the study's logs.
_CHANNELS: Final[dict[str, tuple[float, float]]] = {
    "acc_chest_x": (-9.3, 2.4),
    "acc_chest_y": (0.2, 1.6),
    "acc_chest_z": (-0.2, 2.8),
    "acc_ankle_x": (1.8, 2.2),
    "acc_ankle_y": (-9.1, 2.6),
    "acc_ankle_z": (-0.6, 3.0),
    "gyro_ankle_x": (0.07, 0.44),
    "gyro_ankle_y": (-0.69, 0.31),
    "gyro_ankle_z": (-0.07, 0.43),
    "magnetometer_ankle_x": (7.7, 20.0),
    "magnetometer_ankle_y": (-10.0, 20.0),
    "magnetometer_ankle_z": (1.9, 10.0),
    "acc_arm_x": (-3.9, 2.8),
    "acc_arm_y": (-4.5, 3.2),
    "acc_arm_z": (2.3, 2.4),
    "gyro_arm_x": (-0.41, 0.45),
    "gyro_arm_y": (-0.34, 0.55),
    "gyro_arm_z": (0.38, 0.52),
    "magnetometer_arm_x": (0.7, 21.0),
    "magnetometer_arm_y": (-5.6, 30.0),
    "magnetometer_arm_z": (1.0, 40.0),
}


def made_fit(first: int, count: int, sensors: int, seed: int) -> dict[str, pa.Array]:
    """Return the fields of messages `first` to `first + count - 1`: everybody's, tick after tick."""
    numbers = np.arange(first, first + count)
    person, tick = numbers % sensors, numbers // sensors
    activity = whole(tick // TICKS_PER_ACTIVITY * sensors + person, ACTIVITIES, seed, 111)
    effort = 0.25 + activity / (ACTIVITIES - 1)
    steps = tick * (TICK_MS / 1000) * (0.8 + effort) + uniform(person, seed, 112)
    jolt = np.where(uniform(numbers, seed, 117) < JOLT_SHARE, JOLT, 1.0)
    heart = tick * (TICK_MS / 1000) * (1.0 + effort) + uniform(person, seed, 113)
    columns = {
        "timestamp": pa.array(BEGIN_MS + tick * TICK_MS),
        "subjectId": made_ids(FIT, sensors, seed).take(person),
        "ecg_lead_1": _written(_heartbeat(heart, 1.1) + 0.08 * normal(numbers, seed, 114)),
        "ecg_lead_2": _written(_heartbeat(heart, 1.4) + 0.10 * normal(numbers, seed, 115)),
        "label": pa.array(activity),
    }
    for salt, (name, (rest, swing)) in enumerate(_CHANNELS.items(), start=121):
        swung = np.sin(2 * np.pi * (steps + uniform(salt, seed, 116))) + 0.5 * normal(numbers, seed, salt)
        columns[name] = _written(rest + swing * effort * jolt * swung)
    return columns


def _heartbeat(beats: Numbers, height: float) -> Numbers:
    """Return the voltage at each moment of a beat: the sharp rise and dip, and the slow wave after it."""
    phase = beats % 1.0
    rise = np.exp(-(((phase - 0.30) / 0.02) ** 2)) - 0.3 * np.exp(-(((phase - 0.35) / 0.02) ** 2))
    voltage: Numbers = height * (rise + 0.2 * np.exp(-(((phase - 0.58) / 0.06) ** 2)))
    return voltage


def _written(values: Numbers) -> pa.Array:
    return pa.array(np.round(values, 4))
