"""A cluster on this machine for about a minute, with peers that come and go, and every reading checked."""
