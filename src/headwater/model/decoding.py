"""The exceptions of decoding invalid bytes."""

from typing import Final

import msgspec

# msgspec checks texts as it reads them and lets Python's own error through; its other errors are MsgspecError.
UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
