"""Names and numbers of things.

People see names; the store and the wire use small numbers, because an instance's number is part of every key of its
queue and its state.
"""

import re
from typing import Annotated, Final, NamedTuple, NewType

from msgspec import Meta

from headwater.model.errors import FlowError

AppId = NewType("AppId", int)
WorkerId = NewType("WorkerId", int)

NAME_CHARS_MAX: Final = 100  # a name is part of store keys, file names and metric labels
APP_CHARS_MAX: Final = NAME_CHARS_MAX + 9  # of a submission's id: its name, "@" and eight digits
INSTANCES_MAX: Final = 1_000  # of one app, and as many sources

NUMBER_MAX: Final = 1 << 62  # sums and differences of a few of them are written in 64 bits
SAID_CHARS_MAX: Final = 8 << 20  # as much as an answer takes: an error may quote whatever a user's function has raised
LIST_MAX: Final = 100_000  # lines of an answer: more do not fit one
FIGURE_MAX: Final = 1e300  # of a measurement or a sum; a few of them added up are not infinite

# As they are in messages, where a peer may have written anything. `\\Z` and not `$`, which allows a line break.
AppName = Annotated[str, Meta(max_length=APP_CHARS_MAX, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*(@[0-9a-f]{8})?\Z")]
InstanceNumber = Annotated[int, Meta(ge=0, lt=INSTANCES_MAX)]
Number = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]  # drawn, counted or measured
Signed = Annotated[int, Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)]
Figure = Annotated[float, Meta(ge=-FIGURE_MAX, le=FIGURE_MAX)]
Said = Annotated[str, Meta(max_length=SAID_CHARS_MAX)]  # a text for people in an answer
SaidMany = Annotated[list[Said], Meta(max_length=LIST_MAX)]
SaidAll = Annotated[tuple[Said, ...], Meta(max_length=LIST_MAX)]
SaidByName = Annotated[dict[Said, Said], Meta(max_length=LIST_MAX)]
CountByName = Annotated[dict[Said, Signed], Meta(max_length=LIST_MAX)]
Numbered = Annotated[int, Meta(ge=0, lt=1 << 62)]  # of the entries of a queue, which the store keeps in 64 bits
PlaceNumber = Annotated[int, Meta(ge=-INSTANCES_MAX, lt=INSTANCES_MAX)]  # of an instance, or (negative) of a source

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


class InstanceId(NamedTuple):
    """One instance of a chain, or the queue of a sink: the unit of queueing and scheduling.

    A tuple, since it is made and hashed many times in every turn.
    """

    app: AppId
    number: int

    def __str__(self) -> str:
        """Return the short form used in logs."""
        return f"{self.app}/{self.number}"


def checked_name(what: str, name: str) -> str:
    """Return the name, or raise FlowError with the reason why it is not allowed."""
    if len(name) > NAME_CHARS_MAX:
        raise FlowError(
            f"the {what} name {name[:20]!r}... has {len(name)} characters; at most {NAME_CHARS_MAX} are allowed"
        )
    if _NAME.fullmatch(name) is None:
        raise FlowError(f"{name!r} cannot be a {what} name: use letters, digits, '_', '-' and '.'")
    return name
