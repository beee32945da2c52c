"""The failure detector: probes that wait for an answer, with retransmission and, as in SWIM, indirect probes.

The legal moves of a question:

    asked ──answered──► closed
      │ timeout: asked again, up to `questions_max` times; leaves of ours are asked too ("do you hear it?")
      │ one of them hears it: the count starts over, up to `reprieves_max` times, since only our link may be broken
      └─ the last timeout: the peer is dead, and buried
"""

from dataclasses import dataclass

from headwater.model.peers import NodeId, Peer
from headwater.model.time import Duration
from headwater.overlay.events import OverlayConfig


@dataclass(slots=True)
class Question:
    """A peer that was asked whether it is there."""

    peer: Peer
    for_leaves: bool  # asked for its leaves; else only whether it is there
    asked: int = 1
    reprieves: int = 0


class Questions:
    """All peers that were asked and have not answered."""

    def __init__(self, config: OverlayConfig) -> None:
        self._config = config
        self._open: dict[NodeId, Question] = {}

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def __contains__(self, identity: object) -> bool:
        """Whether a peer has been asked."""
        return identity in self._open

    def find(self, identity: NodeId) -> Question | None:
        """Return the question that a peer has not answered."""
        return self._open.get(identity)

    def begin(self, peer: Peer, *, for_leaves: bool) -> Question | None:
        """Open a question to a peer; None if one is open, which `for_leaves` then turns into one for its leaves."""
        found = self._open.get(peer.id)
        if found is not None:
            found.for_leaves |= for_leaves
            return None
        found = self._open[peer.id] = Question(peer, for_leaves)
        return found

    def answered(self, identity: NodeId) -> Question | None:
        """Close a question."""
        return self._open.pop(identity, None)

    def unanswered(self, question: Question) -> bool:
        """Count a timeout; True if the question is to be asked again, False if that was the last time."""
        if question.asked >= self._config.questions_max:
            del self._open[question.peer.id]
            return False
        question.asked += 1
        return True

    def vouched(self, identity: NodeId) -> None:
        """Start the count over for a peer that others hear, at most `reprieves_max` times."""
        question = self._open.get(identity)
        if question is not None and question.reprieves < self._config.reprieves_max:
            question.reprieves += 1
            question.asked = 1

    def doubtful(self) -> set[NodeId]:
        """Return the peers whose probe has timed out: nothing is routed through them."""
        return {identity for identity, question in self._open.items() if question.asked > 1}

    def awaits_leaves(self) -> bool:
        """Whether a peer that was asked for its leaves has not answered yet."""
        return any(question.for_leaves for question in self._open.values())

    def patience(self, rtt_us: int | None) -> Duration:
        """Return the timeout of a question to a peer with this round trip."""
        if rtt_us is None:
            return self._config.answer_unknown
        return Duration(max(self._config.answer_min, 3 * rtt_us))
