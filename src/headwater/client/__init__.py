"""A user's end: the verbs of a cluster, and the connection that carries them."""
