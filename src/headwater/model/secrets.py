"""Passwords in what people are told: a line of a user's file, or an error, may hold the address of a broker.

It goes to logs, and to everybody who may look at an app, and few of those may know how to be let in there.
"""

import re
from typing import Final

# Each looks from the beginning of a word alone: texts may be long, and made so that looking takes for ever.
_IN_ADDRESS: Final = re.compile(r"((?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@'\"]*):[^\s/@'\"]*@")
_AS_ARGUMENT: Final = re.compile(
    r"(\b\w*password(?!\w)['\"]?\s*[=:]\s*[a-z]{0,2})(['\"])(?:\\.|(?!\2).)*\2", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """Return a text with passwords blotted out: those in addresses, and those that are given by name."""
    return _AS_ARGUMENT.sub(r"\1\2***\2", _IN_ADDRESS.sub(r"\1:***@", text))
