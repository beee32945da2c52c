"""Sizes as people write them."""

import re
from typing import Final

from headwater.model.errors import ConfigError
from headwater.model.quoting import quoted

_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", re.IGNORECASE)


def parse_size(written: str) -> int:
    """Read `256MB`, `2 GB` or a bare number of bytes; a KB has 1,024 bytes."""
    match = _SIZE.fullmatch(written)
    if match is None:
        raise ConfigError(f"{quoted(written)} is not a size; write it like 256MB or 2GB")
    power = "KMGT".find(match[2].upper()) + 1 if match[2] else 0
    return int(float(match[1]) * float(1024**power))
