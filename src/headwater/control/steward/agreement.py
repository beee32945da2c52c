"""Rules that keep a steward from having the rows and state of an instance in two places.

The owner of an app has to agree to every placement, and keeps it durably; a steward waits for the owner, at most
`owner_silence_max`. An instance that has run waits long for a silent host, which alone has its state and queue.
"""

from headwater.control.context import NodeContext
from headwater.control.messages import app_messages as m
from headwater.control.steward.deployment import Deployment
from headwater.model.time import Duration


def is_kept(entry: m.RegisterEntry, placed: m.Placed) -> bool:
    """Whether an instance has rows or state on its host that are nowhere else."""
    return entry.has_run and entry.spec.chains[placed.instance].keeps


def is_lost(ground: NodeContext, entry: m.RegisterEntry, placed: m.Placed, deployment: Deployment) -> bool:
    """Whether a host has been silent for longer than what it runs can wait.

    One that may have been restarted, and knows nothing of what it ran, is asked to run it again before others are.
    """
    config = ground.config
    patience = config.host_silence_max
    was_asked = placed.host.id in deployment.unheard  # when we took the app over
    if is_kept(entry, placed) and not entry.may_begin_anew(placed):
        patience = config.keeper_silence_max
    elif is_kept(entry, placed) and placed.host.id not in ground.ring.known.dead and not was_asked:
        patience = Duration(patience + config.start_tries_max * config.retry)
    return deployment.heard.setdefault(placed.host.id, ground.now) < ground.now - patience


def is_agreed(ground: NodeContext, entry: m.RegisterEntry, deployment: Deployment) -> bool:
    """Whether the app's owner has agreed to where it is placed; it is asked if not, but not for ever.

    What begins anew without state is in nobody's way, even if it does so twice: each row goes to one of the two. So an
    owner that is lost together with a host is asked a few times only.
    """
    if deployment.agreed == entry.placed or not any(chain.keeps for chain in entry.spec.chains):
        return True
    if deployment.proposed_since is None:
        deployment.proposed_since = ground.now
    ground.send(entry.owner, m.PlacementTold(ground.own, entry.spec.name, deployment.agreed, entry.placed))
    config = ground.config
    few_tries = config.start_tries_max * config.retry
    patience = few_tries if deployment.begins_anew else config.owner_silence_max
    return ground.now - deployment.proposed_since > patience


def may_read(ground: NodeContext, entry: m.RegisterEntry, deployment: Deployment) -> bool:
    """Whether sources may be read: the owner has agreed to the placement and heard that it runs, or is silent."""
    if deployment.runs_since is None:
        deployment.runs_since = ground.now
    is_silent = ground.now - deployment.runs_since > ground.config.owner_silence_max
    is_known = deployment.owner_knows or deployment.ran_before
    return is_agreed(ground, entry, deployment) and (is_known or is_silent)
