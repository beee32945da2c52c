"""Hostile: three nodes under attack by strangers, a user and a certified node; honest users are answered all the same.

    python -m bench.hostile --json hostile.json

Each attack is bounded in count and time and goes over loopback only. Beside it honest users ask all nodes, submit and
stop apps, and an app's rows flow from node to node. README.md says what is done and how each figure is judged.
"""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench.command_line import run_as_told
from bench.edge.apart import Apart
from bench.hostile_attacks import ATTACKS, Attackers, Means, Victim
from bench.hostile_ring import APP, Honest, Ring, answered, digits, p99_s, running
from bench.processes import this_machine
from headwater.model.errors import EngineError
from headwater.security.identity import Role

Tell = Callable[[str], None]

VICTIM: Final = 1  # of the nodes: neither whom the others joined, nor who answers for the app
LOOK_S: Final = 0.2
GOALS: Final[dict[str, tuple[str, float]]] = {
    "honest_requests_answered": (">=", 1.0),
    "honest_p99_s": ("<=", 2.0),
    "memory_growth_mb": ("<=", 50.0),
    "store_growth_mb": ("<=", 5.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is done, and for how long."""

    nodes: int = 3
    attacks: tuple[str, ...] = tuple(ATTACKS)
    attack_s: float = 15.0
    after_s: float = 10.0  # what an attack leaves behind shows in what is asked then
    calm_s: float = 20.0  # before the first attack: buffers fill, code warms up
    rate: float = 500.0  # rows a second of the honest app
    spark: bool = True


def plan_for(quick: bool) -> Plan:
    """Return the plan of the short form or of the full one."""
    return Plan(attack_s=5.0, after_s=3.0, calm_s=8.0, spark=False) if quick else Plan()


class _Trial:
    """The attacks, one after the other."""

    def __init__(self, plan: Plan, ring: Ring, honest: Honest, attackers: Apart, tell: Tell) -> None:
        self._plan, self._ring, self._honest, self._attackers, self._tell = plan, ring, honest, attackers, tell
        self._rows = 0  # of the honest app that had come through at the last look

    def all(self) -> dict[str, Any]:
        """Let the app run and users ask for a while, then attack; return what was seen."""
        plan, honest = self._plan, self._honest
        honest.submit_and_stop("calm", VICTIM)
        calm = self._stretch(plan.calm_s)
        if not calm["rows"]:
            raise EngineError(f"no rows flow, even while nobody attacks: {self._ring.status().errors}")
        memory, store = self._ring.memory_mb(), self._ring.store_mb()
        attacks = {name: self._attacked(number, name) for number, name in enumerate(plan.attacks)}
        return {
            "calm": calm,
            "attacks": attacks,
            "memory_mb": {"before": memory, "after": self._ring.memory_mb()},
            "store_mb": {"before": store, "after": self._ring.store_mb()},
            "refused": self._ring.refused(),
            "is_balanced": self._settled(),
        }

    def _attacked(self, number: int, name: str) -> dict[str, Any]:
        victim = self._victim()
        memory, store = self._ring.memory_mb(), self._ring.store_mb()
        self._attackers.send("attack", name, victim, self._plan.attack_s)
        began = self._honest.now_s()
        self._honest.submit_and_stop(f"large-{number}", VICTIM)
        done = self._attackers.wait()
        seen = self._stretch(self._plan.after_s, began)
        seen |= {"done": done, "memory_mb": _most(memory, self._ring.memory_mb())}
        seen["store_mb"] = _most(store, self._ring.store_mb())
        self._tell(
            f"{name}: {seen['requests']} honest requests, {seen['answered']:.1%} answered, "
            f"p99 {seen['p99_s']:.2f} s, memory {seen['memory_mb']:+.1f} MB, store {seen['store_mb']:+.1f} MB"
        )
        return seen

    def _victim(self) -> Victim:
        status = self._ring.status()
        here = [int(number) for number, node in status.homes.items() if node == self._ring.addresses[VICTIM]]
        ports = self._ring.spark_ports(VICTIM) if self._plan.spark else ()
        return Victim(self._ring.addresses[VICTIM], status.id, tuple(here), ports)

    def _stretch(self, seconds: float, began: float | None = None) -> dict[str, Any]:
        """Wait, and return what honest users saw since it began; requests that are under way then count, too."""
        began = self._honest.now_s() if began is None else began
        rows = self._rows
        time.sleep(seconds)
        end = self._honest.now_s()
        asked = self._honest.between(began, end)
        return {
            "requests": len(asked),
            "answered": round(answered(asked), 4),
            "p99_s": round(p99_s(asked), 3),
            "slowest_s": max((one.took_s for one in asked), default=0.0),
            "failures": dict(Counter(digits(one.failure) for one in asked if one.failure).most_common(5)),
            "rows": self._look_at_rows() - rows,
        }

    def _look_at_rows(self) -> int:
        """Note how many rows have come through."""
        self._rows = self._ring.status().rows_out
        return self._rows

    def _settled(self) -> bool:
        """Whether the honest app lost nothing: its ledger balances in the end."""
        deadline = time.monotonic() + self._plan.after_s
        while not self._ring.status().is_balanced:
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_S)
        return True


def _most(before: list[float], after: list[float]) -> float:
    """Return by how much the node that grew most has grown."""
    return round(max(late - early for early, late in zip(before, after, strict=True)), 1)


def run_plan(plan: Plan, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Attack, judge, and write the result if that is wanted."""
    with tempfile.TemporaryDirectory(prefix="headwater-hostile-", ignore_cleanup_errors=True) as scratch:
        tell(f"starting {plan.nodes} nodes with certificates{'' if plan.spark else ', without Spark'}")
        with running(Path(scratch), nodes=plan.nodes, spark=plan.spark) as ring:
            means = Means(
                ring.authority.issue_user("eve", Role.SEE), ring.authority.issue_node("mallory", ["127.0.0.1"])
            )
            attackers = Apart("attackers", Attackers, means)
            try:
                attackers.wait()
                ring.submit(APP, at=0, reads=VICTIM, rate=plan.rate)
                with Honest(ring) as honest:
                    seen = _Trial(plan, ring, honest, attackers, tell).all()
            finally:
                attackers.close()
            asked = honest.asked
    if not asked:
        raise EngineError("nobody asked anything; let the benchmark run for longer")
    details: dict[str, Any] = {"machine": asdict(this_machine()), "plan": asdict(plan), **seen}
    ratios = {
        "honest_requests_answered": round(answered(asked), 4),
        "honest_p99_s": round(p99_s(asked), 3),
        "memory_growth_mb": _most(seen["memory_mb"]["before"], seen["memory_mb"]["after"]),
        "store_growth_mb": _most(seen["store_mb"]["before"], seen["store_mb"]["after"]),
    }
    details["requests"] = len(asked)
    details["unanswered"] = [asdict(one) for one in asked if one.failure][:100]
    details["goals"] = {name: f"{sign} {goal:g}" for name, (sign, goal) in GOALS.items()}
    details["reached"] = {name: _is_reached(name, ratios[name]) for name in GOALS}
    details["limits"] = {name: _limit(name, details) for name, met in details["reached"].items() if not met}
    result: dict[str, Any] = {"ratios": ratios, "details": details, "figures": []}
    if output is not None:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def _is_reached(name: str, value: float) -> bool:
    sign, goal = GOALS[name]
    return value <= goal if sign == "<=" else value >= goal


def _limit(name: str, details: dict[str, Any]) -> str:
    """Say which attacks were felt most in a figure that was not reached."""
    figure = {
        "honest_requests_answered": "answered",
        "honest_p99_s": "p99_s",
        "memory_growth_mb": "memory_mb",
        "store_growth_mb": "store_mb",
    }[name]
    attacks = details["attacks"]
    worst = sorted(attacks, key=lambda attack: attacks[attack][figure], reverse=figure != "answered")[:3]
    return ", ".join(f"{attack}: {attacks[attack][figure]}" for attack in worst)


def run(quick: bool, output: Path | None, tell: Tell) -> dict[str, Any]:
    """Run the benchmark, as `headwater bench hostile` does."""
    return run_plan(plan_for(quick), output, tell)


if __name__ == "__main__":
    run_as_told(__doc__, run)
