"""The requests on one user's connection: decoded, checked against the role, and answered while the budgets allow."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from headwater.links.refusals import Reason
from headwater.links.requests import Caller, refusal_of
from headwater.links.shared_budgets import House
from headwater.links.shares import Holder
from headwater.links.speech import Answered, Asked, NotDone, Refusal, ToDialler, encoder, shortened
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import HeadwaterError
from headwater.model.frames import BrokenFrame
from headwater.security.identity import Identity

log = logging.getLogger(__name__)

WAIT: str = "wait for an answer first"


class Answers:
    """The requests of one connection that have not been answered yet."""

    def __init__(self, house: House, identity: Identity, holder: Holder, called: str, say: Callable[[ToDialler], None]):
        self._house, self._identity, self._holder, self._called, self._say = house, identity, holder, called, say
        self._asked: set[_Request] = set()

    def __bool__(self) -> bool:
        """Whether a request waits for its answer."""
        return bool(self._asked)

    def cancel(self) -> None:
        """Cancel all requests: the connection is closed."""
        for request in list(self._asked):
            request.task.cancel()

    def hear(self, asked: Asked) -> None:
        """Begin to answer a request, or refuse it."""
        house, requests, identity = self._house, self._house.requests, self._identity
        assert requests is not None
        if len(self._asked) >= house.limits.requests_at_once:
            self.refuse(
                asked.number, Reason.TOO_MANY_REQUESTS, f"{WAIT}: at most {house.limits.requests_at_once} at once"
            )
            return
        try:
            request = requests.read_request(asked.request)
        except UNDECODABLE as damage:
            self.refuse(asked.number, Reason.UNKNOWN_REQUEST, shortened(f"is the node's version ours? ({damage})"))
            return
        needed = requests.roles[type(request)]
        if not identity.role.includes(needed):
            what = f"{identity.name!r} has the role {identity.role.value!r}, which is not enough for this"
            self.refuse(asked.number, Reason.ROLE, f"ask for a certificate with the role {needed.value!r}", what)
            return
        self._begin(asked.number, request)

    def _begin(self, number: int, request: msgspec.Struct) -> None:
        house = self._house
        house.requests_begun += 1
        task = asyncio.get_running_loop().create_task(self._answer(number, request))
        begun = _Request(house.requests_begun, number, self, task)
        self._asked.add(begun)
        task.add_done_callback(lambda _: self._done(begun))
        house.begun(begun, self._holder)

    def _done(self, request: "_Request") -> None:
        self._asked.discard(request)
        self._house.under_way.let_go(request)

    def refuse(self, number: int, reason: Reason, remedy: str, what: str = "") -> None:
        """Count a refusal, and answer the request with it."""
        self._house.refusals.note(reason, self._called)
        self._say(NotDone(number, Refusal(what or reason.value, self._house.address, remedy)))

    async def _answer(self, number: int, request: msgspec.Struct) -> None:
        house, identity = self._house, self._identity
        assert house.on_request is not None
        caller = Caller(identity.name, identity.role, self._called)
        try:
            async with asyncio.timeout(house.limits.request_s):
                answer = await house.on_request(caller, request)
            encoded = encoder.encode(answer)
            if len(encoded) > house.limits.answer_bytes:
                raise BrokenFrame(f"an answer of {len(encoded)} bytes")
        except TimeoutError:
            told = f"{type(request).__name__} was not answered within {house.limits.request_s:g} s"
            self._say(NotDone(number, Refusal(told, house.address, "ask again, or ask another node")))
        except Exception as failure:
            if not _is_ours(failure):
                log.exception("%s of %s failed", type(request).__name__, identity)
            self._say(NotDone(number, refusal_of(failure, house.address)))
        else:
            self._say(Answered(number, msgspec.Raw(encoded)))


@dataclass(eq=False, slots=True)
class _Request:
    """A request in progress."""

    number: int  # over all connections of the node
    _own_number: int  # as the user numbers it
    _answers: Answers
    task: "asyncio.Task[None]"

    def cut(self, detail: str) -> None:
        """Cancel the request, and answer that there is no room for it any more."""
        self.task.cancel()
        self._answers.refuse(self._own_number, Reason.TOO_MANY_REQUESTS, f"{WAIT}: {detail}")


def _is_ours(failure: Exception) -> bool:
    """Whether an error was raised on purpose, with a sentence for the user."""
    return isinstance(failure, HeadwaterError)
