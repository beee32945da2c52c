"""Somebody at a node's port who says what they like, and whether the node still works afterwards."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.links.speech import packed, to_dialler, unpacked
from headwater.model.frames import Inbox, pieces_of
from tests.links.wires import Station, until


class Guest:
    """Somebody at a node's port, who says what they like."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak over these."""
        self.reader, self.writer = reader, writer

    def say(self, message: object) -> None:
        """Say something in the form of messages."""
        self.write(b"".join(pieces_of(packed(message, None), 1 << 20)))

    def write(self, data: bytes) -> None:
        """Say something in any form."""
        self.writer.write(data)

    async def rest(self) -> list[object]:
        """Return what is said to us until the node hangs up; without TLS's blessing, nothing."""
        try:
            data = await self.reader.read()
        except (ConnectionError, ssl.SSLError):
            data = b""
        return [to_dialler.decode(unpacked(one, 1 << 20)) for one in Inbox(1 << 20).put(data)]


@asynccontextmanager
async def guest(of: Station, context: ssl.SSLContext | None) -> AsyncIterator[Guest]:
    """A connection to a node's port."""
    host, _, port = of.address.rpartition(":")
    named = None if context is None else "localhost"
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=named)
    try:
        yield Guest(reader, writer)
    finally:
        writer.transport.abort()


def refused(of: Station) -> dict[str, int]:
    """What a node has refused so far."""
    return of.wire.status().refused


async def assert_it_works(of: Station, friend: Station) -> None:
    """Another node is still heard."""
    before = len(of.heard)
    friend.ping(of, before)
    await until(lambda: len(of.heard) > before)
