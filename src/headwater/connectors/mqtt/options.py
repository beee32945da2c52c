"""Options in a broker's address: `mqtts://host/topic?qos=2&tls_ca=ca.pem`, named as the arguments are.

Where there is no code, as on the command line or in a setting, there is only an address. So everything about the
connection can be in it, and takes precedence over the code. The form of a row stays in the code. A password cannot be
an option, as it would be in histories and process lists; the name of its file can.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, TypeVar, cast
from urllib.parse import quote, unquote

from headwater.connectors.mqtt.client import Will
from headwater.connectors.mqtt.topics import checked_name
from headwater.model.errors import FlowError
from headwater.model.quoting import listed, quoted

Read = Callable[[str, str], Any]  # from an option's name and text
Connect = TypeVar("Connect", bound=Callable[..., Any])


def will(topic: str, payload: str | bytes, *, qos: int = 1, retain: bool = True) -> Will:
    """Return what the broker publishes if this client is lost without a goodbye: `to.mqtt(..., will=to.will(...))`."""
    if qos not in (0, 1, 2):
        raise FlowError(f"qos={quoted(qos)} is not a quality of service; give 0, 1 or 2")
    data = payload.encode() if isinstance(payload, str) else payload
    return Will(topic=checked_name(topic), payload=data, qos=qos, retain=retain)


def _text(name: str, written: str) -> str:
    if not written:
        raise FlowError(f"the option {name}= of the address is empty; give it a value, or leave it out")
    return written


def _whole(name: str, written: str) -> int:
    if not (written.isascii() and written.isdigit()):
        raise FlowError(f"the option {name}={written} of the address is not a whole number")
    return int(written)


def _yes(name: str, written: str) -> bool:
    if written not in ("true", "false"):
        raise FlowError(f"the option {name}={written} of the address is neither true nor false")
    return written == "true"


_CONNECTING: Final[dict[str, Read]] = {
    "qos": _whole,
    "version": _text,
    "client_id": _text,
    "username": _text,
    "password_file": _text,
    "tls_ca": _text,
    "tls_cert": _text,
    "tls_key": _text,
    "keepalive": _text,
    "inflight": _whole,
    "will": _text,
    "will_payload": _text,
    "will_qos": _whole,
    "will_retain": _yes,
}
READING: Final = _CONNECTING | {
    "shared": _text,
    "session_expiry": _text,
    "bad_messages": _text,
    "payload_bytes_max": _whole,
}
WRITING: Final = _CONNECTING | {"retain": _yes, "not_finite": _text}


def split(url: str) -> tuple[str, dict[str, str]]:
    """Split an address into one without options, and the options as text."""
    end = _end_of_address(url)
    pairs = [option.partition("=") for option in url[end + 1 :].split("&") if option]
    said = {unquote(name): unquote(written) for name, _, written in pairs}
    if len(said) < len(pairs):
        raise FlowError("the address has an option twice; give each once")
    return url[:end], said


def _end_of_address(url: str) -> int:
    """Return the place of the `?` before the options; one before an `@` may be part of a password."""
    slash = url.find("/", url.find("://") + 3)
    mark = url.find("?", url.rfind("@") + 1)
    if slash >= 0 and not 0 <= mark < slash:  # there is a topic, so the options come after it
        mark = url.find("?", slash)
    return mark if mark >= 0 else len(url)


def joined(url: str, said: Mapping[str, str]) -> str:
    """Append options to an address without any."""
    written = "&".join(f"{quote(name)}={quote(value)}" for name, value in said.items())
    return f"{url}?{written}" if written else url


def with_options(known: Mapping[str, Read]) -> Callable[[Connect], Connect]:
    """Let a function of an address and arguments take those arguments from the address too."""

    def wrapped(connect: Connect) -> Connect:
        @wraps(connect)
        def connected(url: str, *args: Any, **kwargs: Any) -> Any:
            address, said = split(url)
            return connect(address, *args, **kwargs | _arguments(said, known))

        return cast("Connect", connected)

    return wrapped


def _arguments(said: Mapping[str, str], known: Mapping[str, Read]) -> dict[str, Any]:
    """Return the arguments that the options stand for. Errors name an option, but show no value that may be secret."""
    for name in said.keys() - known.keys():
        if name == "password":
            raise FlowError("a password is no option of an address: give password_file=, or HEADWATER_MQTT_PASSWORD")
        shown = name if name.isidentifier() else "with a strange name"
        raise FlowError(f"the address has an option {shown}, which is not known here; known are {listed(known)}")
    given = {name: known[name](name, written) for name, written in said.items()}
    of_will = {name: given.pop(name) for name in list(given) if name.startswith("will")}
    if of_will:
        given["will"] = _will(of_will)
    return given


def _will(given: Mapping[str, Any]) -> Will:
    if "will" not in given or "will_payload" not in given:
        raise FlowError("a last will needs a topic and a payload; give will=TOPIC and will_payload=TEXT")
    more = {name.removeprefix("will_"): given[name] for name in ("will_qos", "will_retain") if name in given}
    return will(given["will"], given["will_payload"], **more)
