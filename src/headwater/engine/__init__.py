"""Which queue runs next on this node, and what a turn does: queues, policies, turns, routing, ledger. Pure."""
