"""A node that notes when what happens to apps: submitted, taken up by a steward, each instance and source open."""

import time
from typing import Final, NamedTuple

from headwater.control.messages.app_messages import RegisterAsked, StartAsked
from headwater.control.messages.events import AppSubmitted, InstanceOpened, MessageReceived, NodeEvent
from headwater.runtime.service.service import NodeService

LOOK_S: Final = 0.002  # between two looks for a source that is about to be opened


class Note(NamedTuple):
    """Something that has happened to an app on a node."""

    at_us: int
    app: str  # its id
    what: str  # submitted, taken up, or open: an instance or, negative, a source
    number: int = 0


def clock_us() -> int:
    """Return an instant of a clock that all processes of this machine share."""
    return time.monotonic_ns() // 1_000


class WatchedNode(NodeService):
    """One node."""

    async def start(self) -> None:
        """Start with nothing noted."""
        self.notes: list[Note] = []
        self._unread: set[tuple[str, int]] = set()  # sources that we were asked to read, and that are not open yet
        await super().start()

    def handle(self, event: NodeEvent) -> None:
        """Take note of what is worth it."""
        match event:
            case AppSubmitted(spec):
                self.note(spec.name, "submitted")
            case MessageReceived(RegisterAsked(spec=spec)) if spec.name not in self.machine.register.entries:
                self.note(spec.name, "taken up")
            case MessageReceived(StartAsked(app=app, instance=number)) if number < 0:
                self._await(app, -1 - number)
            case InstanceOpened(app, instance):
                self.note(app, "open", instance)
        super().handle(event)

    def note(self, app: str, what: str, number: int = 0) -> None:
        """Note that something has happened just now."""
        self.notes.append(Note(clock_us(), app, what, number))

    def _await(self, app: str, source: int) -> None:
        """Look out for a source: nobody tells when it is open."""
        if not self._unread:
            self._loop.call_later(LOOK_S, self._look)
        self._unread.add((app, source))

    def _look(self) -> None:
        for app, source in list(self._unread):
            part = self.plant.parts.get(app)
            if part is not None and source in part.sources:
                self._unread.discard((app, source))
                self.note(app, "open", -1 - source)
        if self._unread:
            self._loop.call_later(LOOK_S, self._look)

    def take_notes(self) -> list[Note]:
        """Return what was noted since the last time."""
        taken, self.notes = self.notes, []
        return taken
