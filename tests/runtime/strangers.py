"""What another user of this machine can try on the ports of a process: bytes to each, and what comes back."""

import os
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ANSWER_S: Final = 20.0  # a port that says nothing for so long says nothing
_LISTENS: Final = "0A"
_UNIX_LISTENS: Final = 1 << 16
_RPC_REQUEST: Final = 3  # of Spark's transport


@dataclass(frozen=True, slots=True)
class Port:
    """Where a process listens over TCP."""

    host: str
    number: int

    def answer_to(self, sent: bytes) -> bytes:
        """Return the first that the port says to these bytes, and to the end of a line; nothing if it hangs up."""
        with socket.create_connection((self.host, self.number), timeout=ANSWER_S) as line:
            line.sendall(sent + b"\n")
            try:
                return line.recv(1 << 16)
            except ConnectionResetError:
                return b""


def listening_ports(pid: int) -> list[Port]:
    """Return the TCP ports on which a process listens, as the kernel tells."""
    inodes = _inodes(pid)
    found = []
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for entry in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            words = entry.split()
            if words[3] == _LISTENS and words[9] in inodes:
                address, number = words[1].split(":")
                found.append(Port(_host(address, family), int(number, 16)))
    return found


def listening_sockets(pid: int) -> list[Path]:
    """Return the paths of the Unix sockets on which a process listens."""
    inodes = _inodes(pid)
    entries = (line.split(maxsplit=7) for line in Path("/proc/self/net/unix").read_text().splitlines()[1:])
    return [Path(words[7]) for words in entries if int(words[3], 16) & _UNIX_LISTENS and words[6] in inodes]


def descendants(pid: int) -> Iterator[int]:
    """Return a process and those that it has started; processes and threads may end while we look."""
    yield pid
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                for child in (task / "children").read_text().split():
                    yield from descendants(int(child))


def _inodes(pid: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if (opened := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor))) is not None:
                    found.add(opened[1])
    return found


def _host(written: str, family: socket.AddressFamily) -> str:
    """Read an address of the kernel's tables: words of 32 bits, each in the machine's own order."""
    packed = b"".join(struct.pack("=I", int(written[at : at + 8], 16)) for at in range(0, len(written), 8))
    return socket.inet_ntop(family, packed).removeprefix("::ffff:")


def rpc_request_with(class_name: str, to: Port) -> bytes:
    """Return a request of Spark's RPC that carries a Java object: who reads it looks up the object's class."""
    described = _utf(class_name) + bytes(8) + b"\x02\x00\x00" + b"\x78\x70"  # no version, no fields, no parent
    thing = b"\xac\xed\x00\x05" + b"\x73\x72" + described
    address = b"\x01" + _utf(to.host) + to.number.to_bytes(4, "big")
    body = b"\x00" + address + _utf("endpoint-verifier") + thing
    message = bytes([_RPC_REQUEST]) + (7).to_bytes(8, "big") + len(body).to_bytes(4, "big") + body
    return (8 + len(message)).to_bytes(8, "big") + message


def gateway_command() -> bytes:
    """Return a command to a py4j gateway, of a caller that has not shown its token: what is `java.lang.Runtime`?"""
    return b"r\nu\njava.lang.Runtime\nrj\ne\n"


def callback_command() -> bytes:
    """Return a command to a py4j callback port, of a caller that has not shown its token: call the first function."""
    return b"c\np0\ncall\ne\n"


def _utf(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()
