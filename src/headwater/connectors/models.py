"""Models in files, read again while the flow runs.

ONNX only computes, so any file of it may be loaded. A pickle (`.pkl`, `.joblib`) can run any code when it is loaded, so
it needs `trusted=True`, by which the flow's author says that no other user can write to the file.

Every worker reads the file on its own machine. Put a new one in place by renaming it over the old: while a file is only
half written the old model stays in use, but a worker that starts just then has none.
"""

import os
import pickle
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from io import BytesIO
from typing import Any, Final

from headwater.connectors.files.files import no_access
from headwater.model.errors import ConnectorError, FlowError
from headwater.model.quoting import quoted
from headwater.model.time import duration_us

SAFE: Final = (".onnx",)
PICKLED: Final = (".joblib", ".pkl", ".pickle")

_DIGESTS_MAX: Final = 256  # more files than one worker has models


@dataclass(frozen=True, kw_only=True)
class FileModel:
    """A model in a file; its version is a hash of the content."""

    path: str
    refresh_us: int | None = None
    trusted: bool = False

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"the model in {self.path}"

    def load(self, known: str | None) -> tuple[Any, str] | None:
        """Read the file unless it has the version `known`; an untouched file is not even read."""
        try:
            found = os.stat(self.path)
            if known is not None and _digest(self.path, found.st_ino, found.st_mtime_ns, found.st_size) == known:
                return None
            content = _read(self.path)
        except OSError as failure:
            raise no_access(self.path, failure, "read") from failure
        version = _digest_of(content)
        return None if version == known else (self._opened(content), version)

    def _opened(self, content: bytes) -> Any:
        if self.path.endswith(SAFE):
            return content
        assert self.trusted, "a pickle was about to be loaded without the author's word"
        try:
            return _unjoblib(content) if self.path.endswith(".joblib") else pickle.loads(content)
        except Exception as failure:  # unpickling runs whatever the file says
            raise ConnectorError(
                f"{self.path} cannot be loaded as a model ({type(failure).__name__}: {failure}); "
                "was it written completely, and by the same versions of the libraries?"
            ) from failure


def model_file(
    path: str | os.PathLike[str], refresh: str | timedelta | None = None, trusted: bool = False
) -> FileModel:
    """Use the model in a file: `.onnx`, or `.joblib` and `.pkl` if you trust all who can write to it.

    With `refresh="10 seconds"` the file is checked again after so long, and a new one is used from the next batch on.
    """
    place = os.path.abspath(os.fspath(path))  # a worker's working directory is not the author's
    if not place.endswith(SAFE + PICKLED):
        raise FlowError(f"{place} does not look like a model; its name must end in {', '.join(SAFE + PICKLED)}")
    if not place.endswith(SAFE) and not trusted:
        raise FlowError(
            f"{place} is a pickle, and loading one runs whatever code its writer put there; convert the model to ONNX, "
            "or pass trusted=True if nobody but you can write to that file"
        )
    refresh_us = None if refresh is None else duration_us(refresh)
    if refresh_us is not None and refresh_us <= 0:
        raise FlowError(f"refresh={quoted(refresh)} is no time at all; write it like '10 seconds'")
    return FileModel(path=place, refresh_us=refresh_us, trusted=trusted)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


@lru_cache(_DIGESTS_MAX)
def _digest(path: str, inode: int, changed_ns: int, size: int) -> str:
    """Return the hash of a file, cached by what changes with its content."""
    return _digest_of(_read(path))


def _unjoblib(content: bytes) -> Any:
    try:
        joblib = import_module("joblib")  # comes with scikit-learn, which is optional
    except ModuleNotFoundError as failure:
        raise ConnectorError("joblib is not installed, and this file needs it; pip install 'headwater[models]'") from (
            failure
        )
    return joblib.load(BytesIO(content))
