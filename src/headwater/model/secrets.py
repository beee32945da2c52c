"""Removes passwords from what people are told: a line of a user's file, or an error, may hold a broker's address.

Such texts go to logs, and to everyone who may look at an app, few of whom should know the broker's password.
"""

import re
from typing import Final

# Each begins at a word boundary only, so that its time is linear: a text may be long, and made to be slow to search.
_IN_ADDRESS: Final = re.compile(r"((?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@'\"]*):[^\s/@'\"]*@")
_AS_ARGUMENT: Final = re.compile(
    r"(\b\w*password(?!\w)['\"]?\s*[=:]\s*[a-z]{0,2})(['\"])(?:\\.|(?!\2).)*\2", re.IGNORECASE
)


def without_passwords(text: str) -> str:
    """Return a text with passwords masked, in addresses and in arguments named so."""
    return _AS_ARGUMENT.sub(r"\1\2***\2", _IN_ADDRESS.sub(r"\1:***@", text))
