"""Requests of users: which there are, the role that each needs, and how requests and answers are decoded.

The table is an argument, so this module does not know how a request is answered. Requests and answers are tagged
msgspec structs, so what arrives is either typed or refused.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

import msgspec

from headwater.links.speech import Refusal, shortened
from headwater.model.errors import HeadwaterError
from headwater.security.identity import Role


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a user by name, or a node, which may only read."""

    name: str
    role: Role
    called: str  # in logs: with id and address


class RequestRefused(HeadwaterError):
    """A request was refused or has failed: what, where, and what to do."""

    def __init__(self, refusal: Refusal) -> None:
        """Keep the parts of the refusal as attributes."""
        self.what, self.where, self.remedy = refusal.what, refusal.where, refusal.remedy
        self.may_pass = refusal.may_pass
        super().__init__(str(refusal))


class RequestTable:
    """All requests, the role that each needs, and all answers."""

    def __init__(self, roles: Mapping[type[msgspec.Struct], Role], answers: tuple[type[msgspec.Struct], ...]) -> None:
        """Make the decoders; msgspec raises TypeError for types that it could not tell apart."""
        assert Role.NODE not in roles.values(), "requests are users'; nodes send messages"
        self.roles = dict(roles)
        self._requests: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(reduce(or_, roles))
        self._answers: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(reduce(or_, answers))

    def read_request(self, raw: msgspec.Raw) -> msgspec.Struct:
        """Return a request; raises msgspec's ValidationError if it is none of these."""
        request: msgspec.Struct = self._requests.decode(raw)
        return request

    def read_answer(self, raw: msgspec.Raw) -> Any:
        return self._answers.decode(raw)


# Returns the answer, or raises a HeadwaterError with a sentence for the user. It is cancelled when the user disconnects
# or the time is up: work that must be finished in any case belongs into a task of its own.
Answering = Callable[[Caller, Any], Awaitable[Any]]


def refusal_of(failure: Exception, where: str) -> Refusal:
    """Return what a user is told of an error; of our own mistakes only their type."""
    if isinstance(failure, RequestRefused):
        what, remedy = shortened(failure.what), shortened(failure.remedy)
        return Refusal(what, failure.where or where, remedy, failure.may_pass)
    if isinstance(failure, HeadwaterError):
        return Refusal(shortened(str(failure)), where)
    return Refusal(f"internal error: {type(failure).__name__}", where, "the node's log says more")
