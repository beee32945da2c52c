"""Bytes of a stranger through all decoders of what others send, led by coverage: `python tests/links/fuzz.py`.

Needs atheris (`pip install atheris`); its options are libFuzzer's, such as `-max_total_time=600` or `-runs=100000`, and
a directory in which to keep what it finds interesting.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from headwater.client.flow_text import read_flow
from headwater.client.questions import answer_decoder, question_decoder
from headwater.client.requests import REQUESTS
from headwater.client.signing import read_signed
from headwater.links.incoming import message_decoder
from headwater.links.speech import asked_decoder, greeting_decoder, to_dialler, unpacked
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import FlowError
from headwater.model.frames import BrokenFrame, Inbox
from headwater.workers.remote.store_wire import from_remote, to_remote

BYTES_MAX = 1 << 16
READERS: tuple[Callable[[bytes], object], ...] = (
    message_decoder.decode,
    asked_decoder.decode,
    greeting_decoder.decode,
    to_dialler.decode,
    question_decoder.decode,  # these are inside of messages and requests
    answer_decoder.decode,
    lambda data: REQUESTS.read_request(msgspec.Raw(data)),
    lambda data: REQUESTS.read_answer(msgspec.Raw(data)),
    read_signed,
    read_flow,
    from_remote.decode,  # between a node and its Spark workers on other machines
    to_remote.decode,
)
REFUSED = (BrokenFrame, FlowError, *UNDECODABLE)


def decode_anything(data: bytes) -> None:
    """Do with bytes what those do who hear them; anything but what was meant or a refusal is a bug."""
    for read in READERS:
        with contextlib.suppress(*REFUSED):
            read(data)
        with contextlib.suppress(*REFUSED):
            read(bytes(unpacked(data, BYTES_MAX)))
    with contextlib.suppress(*REFUSED):
        for message in Inbox(BYTES_MAX, lanes=2).put(data):
            message_decoder.decode(unpacked(message, BYTES_MAX))


def main() -> None:
    """Fuzz until told to stop."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris (Linux, Python 3.11 to 3.13)")
    for function in (decode_anything, unpacked, Inbox.next, Inbox.add, read_signed, read_flow):
        atheris.instrument_func(function)
    atheris.Setup(sys.argv, decode_anything)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
