"""Workers on other machines: their port, their line, and the node's store as they have it."""
