"""Rules that keep a steward from having the rows and state of an instance in two places.

The owner of an app has to agree to every placement, and keeps it durably; a steward waits for the owner, at most
`owner_silence_max`. An instance that has run waits long for a silent host, which alone has its state and queue.
"""

from headwater.control.context import NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.steward.deployment import Deployment


def is_kept(entry: m.RegisterEntry, placed: m.Placed) -> bool:
    """Whether an instance has rows or state on its host that are nowhere else."""
    return entry.has_run and entry.spec.chains[placed.instance].keeps


def is_lost(ground: NodeContext, entry: m.RegisterEntry, placed: m.Placed, deployment: Deployment) -> bool:
    """Whether a host has been silent for longer than this instance waits for it."""
    patience = ground.config.keeper_silence_max if is_kept(entry, placed) else ground.config.host_silence_max
    return deployment.heard.setdefault(placed.host.id, ground.now) < ground.now - patience


def is_agreed(ground: NodeContext, entry: m.RegisterEntry, deployment: Deployment) -> bool:
    """Whether the owner has agreed to the placement; asks it if not, and goes on without it after a timeout."""
    if deployment.agreed == entry.placed or not any(chain.keeps for chain in entry.spec.chains):
        return True
    if deployment.proposed_since is None:
        deployment.proposed_since = ground.now
    ground.send(entry.owner, m.PlacementTold(ground.own, entry.spec.name, deployment.agreed, entry.placed))
    return ground.now - deployment.proposed_since > ground.config.owner_silence_max


def may_read(ground: NodeContext, entry: m.RegisterEntry, deployment: Deployment) -> bool:
    """Whether sources may be read: the owner has agreed to the placement and heard that it runs, or is silent."""
    if deployment.runs_since is None:
        deployment.runs_since = ground.now
    is_silent = ground.now - deployment.runs_since > ground.config.owner_silence_max
    return is_agreed(ground, entry, deployment) and (deployment.owner_knows or is_silent)
