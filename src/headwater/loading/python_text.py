"""Reading Python text as a tree, from any thread.

Python 3.11 counts how deep it is in a tree once per interpreter, not per thread: when the garbage collector runs a
finaliser in the middle of `ast.parse` and another thread parses meanwhile, either may end with "SystemError: AST
constructor recursion depth mismatch" (python/cpython#106905). Here one thread parses at a time; code that is not ours
may still parse beside it, so a text is tried again before the error is believed.
"""

import ast
import threading
from pathlib import Path
from typing import Final

_TRIES: Final = 5
_PARSING: Final = threading.Lock()


def parsed(text: str, path: Path) -> ast.Module:
    """Return the tree of a file's text; a text that is no Python raises SyntaxError, with the path in it."""
    with _PARSING:
        for _ in range(_TRIES - 1):
            try:
                return ast.parse(text, str(path))
            except SystemError:
                continue
        return ast.parse(text, str(path))
