"""Workers on other machines: their port, their connection, and their view of the node's store."""
