"""What a node could not do by a mistake of ours takes nothing else with it, and fills no log."""

import logging
from pathlib import Path
from typing import Any

import pytest

from headwater.control.messages.app_messages import EndKnown, PlacementHeard
from headwater.control.messages.events import (
    AgreedPlacement,
    NodeEffect,
    NodeEvent,
    NoteAppRuns,
    Persist,
    Refused,
    SendMessage,
)
from headwater.model.errors import StoreFull
from headwater.model.peers import Peer, key_of
from headwater.overlay.messages import Heartbeat
from headwater.overlay.mistakes import NoteMistake
from headwater.runtime.mistakes import Mistakes
from headwater.runtime.service.service import NodeService
from headwater.runtime.settings import NodeSettings

OWN = Peer(key_of("own"), "own:1", "here")


def failure(text: str, kind: type[Exception] = ValueError) -> Exception:
    """Return a mistake as it is raised somewhere."""
    try:
        raise kind(text)
    except kind as raised:
        return raised


def test_each_kind_of_mistake_is_logged_once_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    mistakes = Mistakes()
    for number in range(1_000):
        mistakes.note("StartAsked", failure(f"the same again {number}"))
    mistakes.note("deploy", failure("another"))
    errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.exc_info is not None for record in errors] == [True, True]
    assert mistakes.notes() == ("1,001 things were not done, by a mistake of Headwater's: see its log",)


class _Wire:
    """Sends all but what cannot be encoded."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, to: str, message: Any) -> None:
        if isinstance(message, EndKnown):
            raise OverflowError("2^64 does not fit")
        self.sent.append(message)


class _FullDisk:
    """Keeps nothing."""

    def agree(self, app: str, placed: object, has_run: bool) -> None:
        raise StoreFull("no room")


@pytest.fixture
def service(tmp_path: Path) -> NodeService:
    """A node that was not started."""
    made = NodeService(NodeSettings(listen="127.0.0.1:7100", insecure=True, data=tmp_path))
    made.own, made.wire, made.keeping = OWN, _Wire(), _FullDisk()  # type: ignore[assignment]
    return made


def carried_out(service: NodeService, *effects: NodeEffect) -> list[Any]:
    """What is sent of these effects."""
    service._carry_out(effects)
    return service.wire.sent  # type: ignore[attr-defined, no-any-return]


def test_a_message_that_cannot_be_encoded_is_lost_alone(service: NodeService) -> None:
    beat = Heartbeat(OWN)
    sent = carried_out(service, SendMessage("a:1", EndKnown(OWN, "app")), SendMessage("b:1", beat), NoteAppRuns("app"))
    assert (sent, service.mistakes.count) == ([beat], 1)


def test_nothing_is_told_that_could_not_be_kept_and_all_else_is(service: NodeService) -> None:
    """An owner acknowledged a placement that was not on its disk; and one failed effect dropped all later ones."""
    told: list[NodeEvent] = []
    service.handle = told.append  # type: ignore[assignment, method-assign]
    beat, agreed = Heartbeat(OWN), AgreedPlacement("app", (), True)
    persist = Persist(agreed, (SendMessage("a:1", PlacementHeard(OWN, *agreed)),))
    assert carried_out(service, persist, SendMessage("b:1", beat)) == [beat]
    assert told == [Refused(agreed, "no room")]
    assert service.mistakes.count == 0


def test_what_the_machines_could_not_do_is_counted(service: NodeService) -> None:
    assert carried_out(service, NoteMistake("deploy", failure("x")), SendMessage("b:1", Heartbeat(OWN))) != []
    assert service.mistakes.count == 1
