"""The address and the credentials of a broker: URLs, passwords, certificates.

A password is wrapped at once and never shown: not in a repr, an error, a log or a picture. It may be in the URL, but
there it is in shell histories and process lists; `password_file` or the environment is better.
"""

import os
import ssl
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from headwater.dataflow.connectors import Resource, ResourceKind
from headwater.model.errors import ConnectorError, FlowError
from headwater.model.quoting import quoted

PLAIN_PORT: Final = 1883
TLS_PORT: Final = 8883
PASSWORD_BYTES_MAX: Final = 65_535  # as MQTT's length field has it
USERNAME_VARIABLE: Final = "HEADWATER_MQTT_USERNAME"
PASSWORD_VARIABLE: Final = "HEADWATER_MQTT_PASSWORD"


Path = str | os.PathLike[str]


class Secret:
    """A text that its repr does not show."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text; only for the broker."""
        return self._text

    def __repr__(self) -> str:
        """Show only that there is one."""
        return "'***'"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """The trusted authorities and our own certificate. Without `ca` the system's authorities are trusted."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        """Refuse a key without a certificate."""
        if self.key is not None and self.cert is None:
            raise FlowError("tls_key= is the key of a certificate; give tls_cert= as well")

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as failure:
            raise ConnectorError(
                f"tls_ca={self.ca!r} cannot be read as certificates in PEM form: {failure}"
            ) from failure
        if self.cert is not None:
            try:
                context.load_cert_chain(self.cert, self.key)
            except (OSError, ssl.SSLError) as failure:
                where = self.cert if self.key is None else f"{self.cert} with key {self.key}"
                raise ConnectorError(f"tls_cert={where} cannot be read in PEM form: {failure}") from failure
        return context


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A broker, with the credentials for it."""

    host: str
    port: int
    username: str | None = None
    password: Secret | None = None
    password_file: str | None = None
    tls: Tls | None = None

    def __str__(self) -> str:
        """Name the broker without anything secret."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtt' if self.tls is None else 'mqtts'}://{host}:{self.port}"

    def client(self, client_id: str) -> Resource:
        """Return the client id as a resource: the broker lets in only one client with it."""
        host = "127.0.0.1" if self.host in ("localhost", "::1") else self.host.lower()
        return Resource(
            kind=ResourceKind.NAME,
            name=f"client id {client_id!r} at the broker {host}:{self.port}",
            harm="the broker throws out one when the other connects, over and over",
            advice="give each a client_id= of its own, or none",
        )

    @property
    def is_exposed(self) -> bool:
        """Whether the connection can be eavesdropped on."""
        return self.tls is None and self.host != "localhost" and not self.host.startswith(("127.", "::1"))

    def credentials(self) -> tuple[str | None, str | None]:
        """Return user name and password as they are at present; their file may have changed."""
        username = self.username if self.username is not None else os.environ.get(USERNAME_VARIABLE)
        if username is None:
            return None, None
        if self.password is not None:
            return username, self.password.reveal()
        if self.password_file is not None:
            return username, _first_line(self.password_file)
        return username, os.environ.get(PASSWORD_VARIABLE)


def _first_line(path: str) -> str:
    try:
        with open(path, "rb") as file:
            line = file.readline(PASSWORD_BYTES_MAX + 2)
    except OSError as failure:
        raise ConnectorError(f"password_file={path!r} cannot be read: {failure.strerror}") from failure
    try:
        return line.rstrip(b"\r\n").decode()
    except UnicodeDecodeError:
        raise ConnectorError(f"password_file={path!r} is not UTF-8 text") from None


def parsed_url(
    url: str,
    *,
    username: str | None,
    password: str | None,
    password_file: Path | None,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
) -> tuple[Address, str]:
    """Return the broker and the topic of `mqtt://[user[:password]@]host[:port]/topic/levels`.

    All after the slash is the topic, including `#` and `+`; percent signs are decoded. `mqtts://` means TLS.
    """
    scheme, separator, rest = url.partition("://")
    if scheme not in ("mqtt", "mqtts") or not separator:
        raise FlowError(f"a broker is written mqtt://host/topic or mqtts://host/topic, not with {quoted(scheme)}")
    authority, _, topic = rest.partition("/")
    try:
        parts = urlsplit(f"//{authority}")
        port = parts.port
    except ValueError:
        raise FlowError(
            f"the address of the {scheme} broker is not host or host:port, with a port up to 65535; in a user name or "
            "password, all but letters and digits is written as %XX"
        ) from None
    if not parts.hostname or parts.query or parts.fragment:
        raise FlowError(f"the {scheme} URL names no host; write {scheme}://host:port/topic")
    if parts.password is not None and password is not None:
        raise FlowError("the password is in the URL and in password=; give it once, best in password_file=")
    if parts.username is not None and username is not None:
        raise FlowError("the user name is in the URL and in username=; give it once")
    tls = Tls(ca=_path(tls_ca), cert=_path(tls_cert), key=_path(tls_key))
    if scheme == "mqtt" and tls != Tls():
        raise FlowError("tls_ca=, tls_cert= and tls_key= need an encrypted connection; write mqtts://")
    given = password if parts.password is None else unquote(parts.password)
    user = username if parts.username is None else unquote(parts.username)
    if given is not None and password_file is not None:
        raise FlowError("there are a password and a password_file=; give one of them, best the file")
    if user is None and (given is not None or password_file is not None):
        raise FlowError("there is a password but no user name; give username=")
    address = Address(
        host=parts.hostname,
        port=port or (TLS_PORT if scheme == "mqtts" else PLAIN_PORT),
        username=user,
        password=None if given is None else Secret(given),
        password_file=_path(password_file),
        tls=tls if scheme == "mqtts" else None,
    )
    return address, unquote(topic)


def _path(given: Path | None) -> str | None:
    return None if given is None else os.fspath(given)
