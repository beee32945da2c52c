"""The event time of an instance: of its channels, and of each operator of its chain."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.model.batch import Mark
from headwater.model.ids import InstanceId
from headwater.model.store_contract import Snapshot
from headwater.model.store_layout import times_key
from headwater.model.time import BEGINNING_OF_TIME, END_OF_TIME, Micros
from headwater.operators.watermarks import OperatorTime

CHANNELS_MAX: Final = 100_000  # a hundred inputs of a thousand instances
OPERATORS_MAX: Final = 10_000  # of one chain


class Times(msgspec.Struct, array_like=True):
    """The event time of an instance: of its channels, and of each operator of its chain."""

    channels: Annotated[
        dict[Micros, tuple[Micros, bool, bool]], Meta(max_length=CHANNELS_MAX)
    ]  # input and sender -> watermark, idle, ended
    operators: Annotated[list[OperatorTime], Meta(max_length=OPERATORS_MAX)]
    sent_us: Micros = BEGINNING_OF_TIME  # the last watermark sent
    sent_idle: bool = False

    @property
    def wake_us(self) -> int | None:
        """When the instance wants a turn, even without new rows."""
        return min((one.wake_us for one in self.operators if one.wake_us is not None), default=None)

    def watermark(self, expected: Sequence[tuple[int, int]]) -> tuple[int, bool]:
        """Return the watermark over all channels, and whether all are idle: the minimum of those that are not idle.

        An idle channel may resume, so the end of the others is not the end of time. While all open channels are idle,
        event time is where the furthest of all channels has brought it.
        """
        found = [self.channels.get(_channel_key(*channel), _SILENT) for channel in expected]
        open_ones = [one for one in found if not one[2]]
        if not open_ones:
            return END_OF_TIME, False
        awake = [watermark_us for watermark_us, idle, _ in open_ones if not idle]
        return (min(awake), False) if awake else (max(one[0] for one in found), True)

    def note(self, mark: Mark) -> None:
        """Update a channel with a mark."""
        channel = _channel_key(mark.source, mark.sender)
        before_us, _, ended = self.channels.get(channel, _SILENT)
        if mark.watermark_us == END_OF_TIME:
            self.channels[channel] = (before_us, False, True)
        else:
            self.channels[channel] = (max(before_us, mark.watermark_us), mark.idle, ended)


_SILENT: Final = (BEGINNING_OF_TIME, False, False)


def _channel_key(source: int, sender: int) -> int:
    return source << 32 | sender


_TIMES_DECODER: Final = msgspec.msgpack.Decoder(Times)


def read_times(snapshot: Snapshot, instance: InstanceId, operators: int) -> Times:
    """Return the event time of an instance."""
    packed = snapshot.get(times_key(instance))
    return Times({}, [OperatorTime() for _ in range(operators)]) if packed is None else _TIMES_DECODER.decode(packed)
