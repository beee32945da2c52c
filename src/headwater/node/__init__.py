"""One node: the machines of the ring, its trees, stewards and hosts, put together; and what nodes tell others."""
