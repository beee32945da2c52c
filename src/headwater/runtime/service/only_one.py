"""A lock on a node's identity: two running nodes with one key would answer for one another.

That happens if data or certificates are copied, or two nodes share `--certs`. On one machine the second node is
refused; there is no lock between machines, where the operator has to see to it.
"""

import logging
from contextlib import ExitStack

from headwater.model.errors import ConfigError
from headwater.model.peers import NodeId
from headwater.runtime.settings import NodeSettings
from headwater.storage.locks import FileLock, LockHeld, file_of_name, this_process, told
from headwater.workers.clock import now_us

log = logging.getLogger(__name__)


def locked_identity(node: NodeId, settings: NodeSettings) -> ExitStack:
    """Lock an identity until the returned stack is closed; on a file system without locks this does nothing."""
    own = "--data" if settings.certs is None else "--certs"
    place = settings.data if settings.certs is None else settings.certs
    holder = this_process(f"the node with --data {settings.data}", now_us())
    held = ExitStack()
    try:
        held.callback(FileLock(file_of_name(f"node {node.hex()}"), holder).release)
    except LockHeld as refusal:
        raise ConfigError(
            f"the identity of this node, {node[:4].hex()} in {own} {place}, is used by {told(refusal.holder)}; two "
            f"would answer for one another: stop that one, or give this one {own} of its own"
        ) from None
    except OSError as failure:
        log.warning("the identity of this node cannot be locked: %s", failure)
    return held
