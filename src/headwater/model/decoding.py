"""What comes out of decoding bytes that are not what they should be."""

from typing import Final

import msgspec

# msgspec looks at texts when it reads them, and lets Python say what is wrong with one; its own errors are others.
UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
