"""Whose rows come last in a file or directory: a mark of the writer that began there last, kept with it.

A sink that goes on at its position cuts off what lies behind: rows of its own that were written and not committed. But
while it was stopped, and held no lock, another app may have begun behind its rows or in their place. So a writer that
begins leaves its name as an extended attribute, like a fencing token, and has it in its position, too: one that goes on
and finds the name of another cuts nothing off.

Some file systems (FAT, older NFS) have no such attributes. Nothing is marked there, and what is cut off is not told
apart.
"""

import logging
import os
import secrets
from typing import Final

log = logging.getLogger(__name__)

_ATTRIBUTE: Final = "user.headwater.writer"
_NAME_BYTES: Final = 8


def new_writer() -> str:
    """Return a name that no other writer has."""
    return secrets.token_hex(_NAME_BYTES)


def mark(place: int | str, writer: str) -> None:
    """Leave the name of a writer at an opened file or a directory, in place of any other."""
    try:
        os.setxattr(place, _ATTRIBUTE, writer.encode())
    except OSError as failure:  # a device, or a file system without attributes or without room for one
        log.debug("%s cannot be marked: %s", place, failure)


def is_anothers(place: int | str, writer: str | None) -> bool:
    """Whether a writer of another name has begun there last; `writer` is None if it began before there were marks."""
    try:
        found = os.getxattr(place, _ATTRIBUTE)
    except OSError as failure:
        log.debug("%s has no mark: %s", place, failure)
        return False
    return found != (writer or "").encode()
