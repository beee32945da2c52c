"""Something that lives in a process of its own, is told over a pipe what to do, and ends with the other end of it."""

import logging
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Protocol

from headwater.model.errors import EngineError, HeadwaterError
from headwater.runtime.logs import LogFormat, log_to


class Closing(Protocol):
    """What can be ended."""

    def close(self) -> None:
        """End."""
        ...


class Apart:
    """The near end of it."""

    def __init__(self, name: str, make: Callable[..., Closing], *arguments: Any) -> None:
        """Start the process; `wait` waits until what lives there is made."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), name=name)
        self._process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Have something done there, and return what comes of it."""
        self.send(method, *arguments)
        return self.wait()

    def send(self, method: str, *arguments: Any) -> None:
        """Have something done there; `wait` returns what comes of it."""
        self._connection.send((method, arguments))

    def wait(self) -> Any:
        """Return what comes next; raises what was raised there."""
        try:
            answer = self._connection.recv()
        except EOFError:
            raise EngineError(f"the process of {self._process.name} ended; see what it printed") from None
        if isinstance(answer, EngineError):
            raise answer
        return answer

    def close(self) -> None:
        """Hang up, and wait for the end."""
        self._connection.close()
        self._process.join()


def _serve(connection: Connection, make: Callable[..., Closing], arguments: tuple[Any, ...]) -> None:
    """Do what the other side asks for, until it hangs up."""
    logging.getLogger("headwater").setLevel(logging.ERROR)
    with log_to(LogFormat.TEXT, None):  # py4j tells at length that a JVM has ended, as it is to
        _answer_all(connection, make, arguments)


def _answer_all(connection: Connection, make: Callable[..., Closing], arguments: tuple[Any, ...]) -> None:
    try:
        made = make(*arguments)
    except HeadwaterError as failure:
        connection.send(EngineError(str(failure)))
        return
    try:
        connection.send(None)
        while True:
            method, asked = connection.recv()
            connection.send(_answer(made, method, asked))
    except (EOFError, KeyboardInterrupt):
        pass
    finally:
        made.close()


def _answer(made: Closing, method: str, arguments: tuple[Any, ...]) -> Any:
    try:
        return getattr(made, method)(*arguments)
    except HeadwaterError as failure:
        return EngineError(str(failure))
