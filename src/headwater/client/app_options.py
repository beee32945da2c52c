"""The options of an app, and which of them its next version keeps.

An upgrade replaces a flow, not the options given at its submission (rate, source, sink, settings): an option that the
upgrade does not name keeps its value.
"""

from collections.abc import Iterator, Sequence

import msgspec

from headwater.client.flow_text import EndsText, FlowText
from headwater.connectors.mqtt.options import split

_NOTHING = EndsText()


def with_kept(running: FlowText, ends: EndsText, settings: Sequence[str]) -> tuple[EndsText, tuple[str, ...]]:
    """Return the options for the next version: those given for the upgrade, and all others of the running version."""
    said = {name: value for name in ends.__struct_fields__ if (value := getattr(ends, name)) != getattr(_NOTHING, name)}
    named = {_name(one) for one in settings}
    unsaid = [one for one in running.settings if _name(one) not in named]
    return msgspec.structs.replace(running.ends, **said), (*unsaid, *settings)


def _name(setting: str) -> str:
    return setting.partition("=")[0]


def options_in_common(before: FlowText, after: FlowText) -> tuple[str, ...]:
    """Return the options that both versions have, as a user writes them."""
    told = set(_options(after))
    return tuple(_shown(*one) for one in _options(before) if one in told)


def _options(text: FlowText) -> Iterator[tuple[str, object]]:
    for name in text.ends.__struct_fields__:
        value = getattr(text.ends, name)
        if value != getattr(_NOTHING, name):
            yield f"--{name}", value
    if not text.chaining:
        yield "--no-chaining", True
    for setting in text.settings:
        name, _, value = setting.partition("=")
        yield f"--set {name}=", value


def _shown(option: str, value: object) -> str:
    match value:
        case True:
            return option
        case float():
            return f"{option} {value:g}"
        case str() if option.startswith("--set"):
            return f"{option}{_without_secrets(value)}"
        case str():
            return f"{option} {_without_secrets(value)}"
    return f"{option} {value}"


def _without_secrets(written: str) -> str:
    """Return an address without user, password and options; anything else as it is."""
    scheme, is_address, rest = written.partition("://")
    if not is_address:
        return written
    host, slash, path = split(f"{scheme}://{rest}")[0].removeprefix(f"{scheme}://").partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
