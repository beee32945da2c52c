"""Parsing Python text from any thread.

Python 3.11 counts the depth of its parser per interpreter, not per thread: when the garbage collector runs a finaliser
in the middle of `ast.parse` while another thread parses, either may raise "SystemError: AST constructor recursion depth
mismatch" (python/cpython#106905). Here one thread parses at a time; other code may parse meanwhile, so parsing is
retried before the error counts.
"""

import ast
import threading
from pathlib import Path
from typing import Final

_TRIES: Final = 5
_PARSING: Final = threading.Lock()


def parsed(text: str, path: Path) -> ast.Module:
    """Return the tree of a file's text; raises SyntaxError, with the path in it, if it is not Python."""
    with _PARSING:
        for _ in range(_TRIES - 1):
            try:
                return ast.parse(text, str(path))
            except SystemError:
                continue
        return ast.parse(text, str(path))
