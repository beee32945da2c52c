"""Bytes of a stranger through all decoders of the wire, led by coverage: `python tests/runtime/links/fuzz.py`.

Needs atheris (`pip install atheris`); its options are libFuzzer's, such as `-max_total_time=600` or `-runs=100000`, and
a directory in which to keep what it finds interesting.
"""

import sys
from pathlib import Path

import msgspec

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from headwater.runtime.frames import Inbox
from headwater.runtime.links.incoming import message_decoder
from headwater.runtime.links.speech import asked_decoder, greeting_decoder, to_dialler, unpacked
from headwater.runtime.wire import BrokenFrame

BYTES_MAX = 1 << 16
DECODERS = (message_decoder, asked_decoder, greeting_decoder, to_dialler)


def decode_anything(data: bytes) -> None:
    """Do with bytes what a connection does; anything but a message or a refusal is a bug."""
    for decoder in DECODERS:
        try:
            decoder.decode(unpacked(data, BYTES_MAX))
        except (BrokenFrame, msgspec.MsgspecError, RecursionError):
            continue
    try:
        for message in Inbox(BYTES_MAX, lanes=2).put(data):
            message_decoder.decode(unpacked(message, BYTES_MAX))
    except (BrokenFrame, msgspec.MsgspecError, RecursionError):
        return


def main() -> None:
    """Fuzz until told to stop."""
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: pip install atheris (Linux, Python 3.11 to 3.13)")
    for function in (decode_anything, unpacked, Inbox.next, Inbox.add):
        atheris.instrument_func(function)
    atheris.Setup(sys.argv, decode_anything)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
