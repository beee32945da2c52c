"""The user's side: the operations of a cluster, and the connection to a node that carries them."""
