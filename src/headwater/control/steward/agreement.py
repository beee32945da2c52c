"""What a steward may do with an app whose rows and state lie on its hosts: nothing that puts them in two places.

The app's owner has agreed to where its instances are, and keeps that on its disk, whoever forgets; an owner that is
silent for too long is not waited for. What has run waits long for its host: nobody else can go on in its stead.
"""

from headwater.control.context import NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.steward.deployment import Deployment


def is_kept(entry: m.RegisterEntry, placed: m.Placed) -> bool:
    """Whether an instance has something on its host by now that is nowhere else."""
    return entry.has_run and entry.spec.chains[placed.instance].keeps


def is_lost(ground: NodeContext, entry: m.RegisterEntry, placed: m.Placed, deployment: Deployment) -> bool:
    """Whether a host has been silent for longer than what it runs can wait."""
    patience = ground.config.keeper_silence_max if is_kept(entry, placed) else ground.config.host_silence_max
    return deployment.heard.setdefault(placed.host.id, ground.now) < ground.now - patience


def is_agreed(ground: NodeContext, entry: m.RegisterEntry, deployment: Deployment) -> bool:
    """Whether the app's owner has agreed to where it is placed; it is asked if not, but not for ever."""
    if deployment.agreed == entry.placed or not any(chain.keeps for chain in entry.spec.chains):
        return True
    if deployment.proposed_since is None:
        deployment.proposed_since = ground.now
    ground.send(entry.owner, m.PlacementTold(ground.own, entry.spec.name, deployment.agreed, entry.placed))
    return ground.now - deployment.proposed_since > ground.config.owner_silence_max


def may_read(ground: NodeContext, entry: m.RegisterEntry, deployment: Deployment) -> bool:
    """Whether rows may come in: the owner knows where they are going to lie, or has been silent for too long."""
    if deployment.runs_since is None:
        deployment.runs_since = ground.now
    is_silent = ground.now - deployment.runs_since > ground.config.owner_silence_max
    return is_agreed(ground, entry, deployment) and (deployment.owner_knows or is_silent)
