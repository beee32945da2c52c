"""The settings of `headwater node`: from its command line, the environment, a file, or defaults, in that order.

    headwater node --listen 10.0.0.1:7100 --certs /etc/headwater/certs
    HEADWATER_NODE_LISTEN=10.0.0.1:7100
    listen = "10.0.0.1:7100"              # in a TOML file: --config FILE, or HEADWATER_NODE_CONFIG

An unknown key is refused by name, wherever it is: a misspelt setting must not fall back to the default.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from headwater.engine.policies import Consumption, PolicyName
from headwater.engine.pressure import DISK_BYTES, MEMORY_BYTES, PressureConfig
from headwater.links.credentials import Credentials, insecure_node, load_credentials
from headwater.links.credentials import refuse_insecure_beyond_loopback as refuse_beyond_loopback
from headwater.links.emulation import LinkTable, read_links
from headwater.links.wire import WireConfig
from headwater.model.errors import ConfigError, HeadwaterError
from headwater.model.ids import checked_name
from headwater.model.peers import PEERS_OF_A_MACHINE_MAX
from headwater.model.quoting import quoted
from headwater.model.sizes import parse_size
from headwater.spark.address import ADDRESS_FORM, host_and_port
from headwater.spark.standalone import masters_of
from headwater.workers.config import NodeConfig, cores_here

ENVIRONMENT: Final = "HEADWATER_NODE_"
CONFIG: Final = "config"
CAPACITY_MAX: Final = 10_000
CAPACITY: Final = 64  # a gateway of two cores runs some twenty flows of three operators and is not full
ADAPTIVE: Final = "adaptive"
METRICS_HOST: Final = "127.0.0.1"  # metrics tell the names of apps and operators
AUTO: Final = "auto"  # of peers: as many as the capacity makes
JOIN_MAX: Final = 64
_ANYWHERE: Final = frozenset({"0.0.0.0", "::", "*"})
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """The settings of one node."""

    listen: str = "127.0.0.1:7100"  # this machine only, unless set
    advertise: str | None = None  # the address for other nodes; None: `listen`
    join: tuple[str, ...] = ()  # nodes through which to join, the first that answers; none: begin a ring
    zone: str = "default"
    capacity: int = CAPACITY  # the most operators to run here
    peers: int = 1  # on this machine, each a node of its own; 0: as many as fit its capacity
    data: Path = Path("headwater-data")  # rows, state, and the key if there are no certificates
    spark_master: str | None = None  # None: a Spark of our own
    certs: Path | None = None  # the output of `headwater certs node`
    insecure: bool = False  # no certificates, on this machine only
    links: Path | None = None  # a file of emulated links, for experiments
    workers: int | None = None  # of the pool; None: one for each core
    no_spark: bool = False  # workers are threads: for tests, and for machines without Java
    power_safe: bool = False  # every commit waits for the disk
    memory: int = MEMORY_BYTES  # bytes of waiting rows at which sources pause
    disk: int = DISK_BYTES  # bytes of waiting rows at which the oldest are shed
    policy: PolicyName = PolicyName.LONGEST_QUEUE  # which queue runs next
    consume: str = ADAPTIVE  # rows a turn takes: adaptive, all, half or a number
    metrics: str | None = None  # host and port at which Prometheus may ask; None: nowhere

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, and say what would."""
        host = _checked_address("listen", self.listen)
        told = _checked_address("advertise", self.advertise or self.listen)
        if self.advertise is not None and self.advertise.endswith(":0"):
            raise ConfigError(
                f"others cannot reach a node at port 0; give --advertise {told} the port that they are to use"
            )
        if told in _ANYWHERE or (self.advertise is None and self.listen.endswith(":0") and not self.insecure):
            raise ConfigError(
                f"others cannot reach a node at {self.advertise or self.listen}; "
                "say with --advertise HOST:PORT which address they are to use"
            )
        if len(self.join) > JOIN_MAX:
            raise ConfigError(f"{len(self.join)} nodes to join are too many; {JOIN_MAX} are enough")
        joined = [_checked_address("join", address) for address in self.join]
        _checked_zone(self.zone)
        if not 1 <= self.capacity <= CAPACITY_MAX:
            raise ConfigError(f"a capacity of {self.capacity} operators is not possible; use 1 to {CAPACITY_MAX}")
        if self.spark_master is not None:
            masters_of(self.spark_master)
        self._check_peers()
        if self.metrics is not None:
            _checked_address("metrics", self.metrics)
        self.engine()
        self._check_safety([("--listen", host), ("--advertise", told), *(("--join", host) for host in joined)])

    def _check_peers(self) -> None:
        most = min(PEERS_OF_A_MACHINE_MAX, self.capacity)
        if not 0 <= self.peers <= most:
            raise ConfigError(
                f"a machine with room for {self.capacity} operators carries 1 to {most} peers, not {self.peers}"
            )
        if self.peers != 1 and self.spark_master is not None:
            raise ConfigError("several peers share a Spark of their own: take --peers or --spark-master away")

    def _check_safety(self, hosts: list[tuple[str, str]]) -> None:
        if self.insecure and self.certs is not None:
            raise ConfigError("--certs and --insecure contradict one another; take one of them away")
        if not self.insecure and self.certs is None:
            raise ConfigError(
                "a node needs certificates: make them with `headwater certs init` and `headwater certs node`, and give "
                "--certs DIR; to try things out on this machine alone, --insecure does without"
            )
        if self.insecure:
            for what, host in hosts:
                refuse_beyond_loopback(what, host)

    def credentials(self) -> Credentials:
        """Return this node's identity."""
        return insecure_node(self.data) if self.certs is None else load_credentials(self.certs)

    def engine(self) -> NodeConfig:
        """Return the configuration of the engine."""
        return NodeConfig(
            store=self.data / "store",
            workers=cores_here() if self.workers is None else self.workers,
            spark=not self.no_spark,
            spark_master=self.spark_master,
            power_safe=self.power_safe,
            policy=self.policy,
            consumption=Consumption.parse(self.consume),
            pressure=PressureConfig(memory_bytes=self.memory, disk_bytes=self.disk),
        )

    @property
    def metrics_place(self) -> tuple[str, int] | None:
        """Where metrics are served, as host and port."""
        return None if self.metrics is None else host_and_port(self.metrics)

    @property
    def flows(self) -> Path:
        """The folder for source texts of flows."""
        return self.data / "flows"

    def wire(self, bulky: frozenset[type[Any]] = frozenset()) -> WireConfig:
        """Return the configuration of the wire."""
        return WireConfig(listen=self.listen, advertise=self.advertise, bulky=bulky)

    def link_table(self) -> LinkTable | None:
        """Return the emulated links; None: no emulation."""
        return None if self.links is None else read_links(self.links, self.zone)


def read_settings(command_line: Mapping[str, Any], environment: Mapping[str, str]) -> NodeSettings:
    """Merge the settings of all places; None on the command line means not given."""
    said = {key: value for key, value in command_line.items() if value is not None}
    in_environment = {
        name.removeprefix(ENVIRONMENT).lower(): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT)
    }
    file = said.pop(CONFIG, in_environment.pop(CONFIG, None))
    merged: dict[str, Any] = {}
    for where, given in (
        (f"the file {file}", {} if file is None else _in_file(file)),
        (f"the environment ({ENVIRONMENT}...)", in_environment),
        ("the command line", said),
    ):
        read = {key: _read(where, key, value) for key, value in given.items()}
        merged = _without_contradicted(merged, read) | read
    return NodeSettings(**merged)


def read_values(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that were said on the command line, each in its type."""
    return {key: _read("the command line", key, value) for key, value in said.items()}


def _without_contradicted(before: dict[str, Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """Drop what a place of higher precedence contradicts: certificates if it says insecure, and the reverse."""
    contradicted = {"insecure"} if "certs" in said else {"certs"} if said.get("insecure") else set()
    return {key: value for key, value in before.items() if key not in contradicted}


def _in_file(written: Any) -> dict[str, Any]:
    try:
        path = _as_path(written)
    except ValueError as failure:
        raise ConfigError(f"the configuration {written!r} cannot be read: {failure}") from failure
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as failure:
        raise ConfigError(f"the configuration {path} cannot be read: {failure.strerror}") from failure
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as failure:
        raise ConfigError(f"the configuration {path} is not TOML: {failure}") from failure


def _read(where: str, key: str, value: Any) -> Any:
    """Convert a value to the type of its setting: text is parsed, another type must be the right one."""
    known = {each.name: each.type for each in fields(NodeSettings)}
    if key not in known:
        raise ConfigError(f"{where} sets {quoted(key)}, which is no setting of a node; there are: {', '.join(known)}")
    try:
        return _READERS.get(key, _as_text)(value)
    except (ValueError, TypeError, ConfigError) as failure:
        raise ConfigError(f"{where} sets {key} to {quoted(value)}: {failure}") from failure


def _as_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text is needed")
    return value


def _as_path(value: Any) -> Path:
    path = value if isinstance(value, Path) else Path(_as_text(value))
    if "\0" in str(path):
        raise ValueError("no path has a zero byte")
    try:
        return path.expanduser()
    except RuntimeError:
        raise ValueError("this user is not known here") from None


def _as_number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a whole number is needed")
    try:
        return int(value)
    except ValueError:
        raise ValueError("a whole number is needed") from None


def _as_size(value: Any) -> int:
    return parse_size(value) if isinstance(value, str) else _as_number(value)


def _as_policy(value: Any) -> PolicyName:
    try:
        return PolicyName(value)
    except ValueError:
        raise ValueError(f"no such policy; there are {', '.join(PolicyName)}") from None


def _as_rule(value: Any) -> str:
    written = str(value) if isinstance(value, int) and not isinstance(value, bool) else _as_text(value)
    Consumption.parse(written)
    return written


def _as_place(value: Any) -> str:
    """Return where to listen; a port by itself is one of this machine."""
    is_port = (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, str) and value.isdigit())
    return f"{METRICS_HOST}:{value}" if is_port else _as_text(value)


def _as_peers(value: Any) -> int:
    return 0 if value == AUTO else _as_number(value)


def _as_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _TRUE | _FALSE:
        return value.lower() in _TRUE
    raise ValueError("true or false is needed")


def _as_addresses(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise ValueError("a list of addresses is needed")
    return tuple(value)


_READERS: Final[Mapping[str, Any]] = {
    "join": _as_addresses,
    "capacity": _as_number,
    "peers": _as_peers,
    "data": _as_path,
    "certs": _as_path,
    "links": _as_path,
    "insecure": _as_bool,
    "workers": _as_number,
    "no_spark": _as_bool,
    "power_safe": _as_bool,
    "memory": _as_size,
    "disk": _as_size,
    "policy": _as_policy,
    "consume": _as_rule,
    "metrics": _as_place,
}


def _checked_address(what: str, written: str) -> str:
    place = host_and_port(written)
    if place is None:
        raise ConfigError(f"--{what} {written!r} is not an address; {ADDRESS_FORM}")
    return place[0]


def _checked_zone(zone: str) -> None:
    try:
        checked_name("zone", zone)
    except HeadwaterError as failure:
        raise ConfigError(str(failure)) from failure
