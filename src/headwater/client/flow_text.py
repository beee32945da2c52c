"""A flow on its way to other nodes: as source text, never as pickle.

What travels is what the user wrote: the Python file and the modules beside it that it imports, or the name of an
application that ships with Headwater, with its options. Every node checks that a user has signed it (`signing.py`),
builds the flow itself and compares its fingerprint with the user's. Only source text travels: data files have to be
where the flow reads them.
"""

import ast
import shutil
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from headwater.client.signing import TEXT_BYTES_MAX, Check
from headwater.dataflow.compile import compile_flow
from headwater.dataflow.graph import Graph
from headwater.dataflow.stream import Flow
from headwater.loading.catalogue import is_name
from headwater.loading.endpoints import Ends
from headwater.loading.flow_file import load_flows, parted
from headwater.loading.module_isolation import (
    forget_text,
    know_text,
    modules_in,
    only_beside,
    remember_built,
    text_being_built,
)
from headwater.loading.python_text import parsed
from headwater.model.decoding import UNDECODABLE
from headwater.model.errors import FlowError
from headwater.model.ids import checked_name

FILES_MAX: Final = 200
NAME_CHARS_MAX: Final = 200
SHIPPED_MAX: Final = 64  # graphs of applications in the cache
_shipped_graphs: OrderedDict[bytes, Graph] = OrderedDict()
_BUILDING: Final = threading.RLock()  # building imports modules, which changes state of the whole process
_keepers: dict[Path, set[str]] = {}  # the folders of texts that are kept, and the apps that need each

Name = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]


class EndsText(msgspec.Struct, frozen=True, omit_defaults=True):
    """The options of an application that say where its rows come from and go to."""

    rate: float | None = None
    rows: int | None = None
    data: str | None = None
    loop: bool = False
    source: str | None = None
    sink: str | None = None

    def ends(self) -> Ends:
        """Return the options as a node uses them; the app's state is kept, so brokers should keep messages too."""
        data = None if self.data is None else Path(self.data)
        return Ends(
            rate=self.rate,
            rows=self.rows,
            data=data,
            loop=self.loop,
            source=self.source,
            sink=self.sink,
            is_kept=True,
        )


class FlowText(msgspec.Struct, frozen=True, omit_defaults=True):
    """One flow as text."""

    name: Name  # of the flow: a file may have several
    fingerprint: Annotated[str, Meta(max_length=64)]
    written: Name  # the file in which it is, or the application's name
    files: Annotated[dict[Name, str], Meta(max_length=FILES_MAX)] = {}
    settings: tuple[str, ...] = ()
    ends: EndsText = EndsText()
    called: Name = ""  # the app's name, if that is not the flow's
    chaining: bool = True  # False: every operator runs by itself

    @property
    def app(self) -> str:
        """The name of the app."""
        return self.called or self.name

    def encode(self) -> bytes:
        """Return the bytes to sign and send; raises FlowError if there are too many."""
        encoded = msgspec.msgpack.encode(self)
        if len(encoded) > TEXT_BYTES_MAX:
            raise FlowError(
                f"flow {self.name!r} and the modules it imports have {len(encoded):,} bytes; at most "
                f"{TEXT_BYTES_MAX:,} can travel. Keep data in files that are on the nodes"
            )
        return encoded


def flow_texts(
    written: str,
    ends: EndsText | None = None,
    settings: Sequence[str] = (),
    called: str | None = None,
    *,
    chaining: bool = True,
) -> list[FlowText]:
    """Return the flows of `FLOW.py`, the one that `FLOW.py:name` picks, or that of an application, as text."""
    ends = ends or EndsText()
    if called is not None:
        checked_name("flow", called)
    flows, file, files = _loaded(written, ends, settings)
    if called and len(flows) > 1:
        names = ", ".join(flow.name for flow in flows)
        raise FlowError(f"{written} has {len(flows)} flows ({names}), which cannot all be called {called!r}")
    if len(file) > NAME_CHARS_MAX:
        raise FlowError(f"the file's name has {len(file)} characters; at most {NAME_CHARS_MAX} can travel")
    return [
        FlowText(flow.name, graph.fingerprint, file, files, tuple(settings), ends, called or "", chaining)
        for flow in flows
        for graph in [compile_flow(flow, chaining=chaining)]
    ]


def _loaded(written: str, ends: EndsText, settings: Sequence[str]) -> tuple[list[Flow], str, dict[str, str]]:
    """Return the flows, the name of their file, and the texts of it and of the modules beside it that it imports."""
    if is_name(written):
        return load_flows(written, ends.ends(), settings), written, {}
    path = parted(written)[0].resolve()  # the modules are beside a link's target
    with _BUILDING, only_beside(path.parent):
        return load_flows(written, ends.ends(), settings), path.name, _files_of(path)


def read_flow(encoded: bytes) -> FlowText:
    """Decode a flow whose signature has been checked; raises FlowError if it is invalid."""
    try:
        text = msgspec.msgpack.decode(encoded, type=FlowText)
    except UNDECODABLE as damage:
        raise FlowError(f"what was sent is no flow ({damage}); is the sender's version ours?") from damage
    for name in (*text.files, text.written if text.files else "x.py"):
        parts = Path(name).parts
        if Path(name).is_absolute() or ".." in parts or not name.endswith(".py") or "\0" in name:
            raise FlowError(f"a flow cannot have a file named {name!r}")
    if text.called:
        checked_name("flow", text.called)
    if text.files and text.written not in text.files:
        raise FlowError(f"flow {text.name!r} came without its file {text.written!r}")
    if not text.files and not is_name(text.written):
        raise FlowError(f"flow {text.name!r} is neither an application's nor has it a file")
    return text


@contextmanager
def built(signed: bytes, directory: Path, check: Check, keep_for: str | None = None) -> Iterator[Graph]:
    """Build a flow from its text; its modules can be imported inside the block, and no other flow is built meanwhile.

    This is the only way from bytes to code, and it begins with `check` (of `Trust`). The text's files are written to a
    folder of their own below `directory`, which is deleted afterwards unless an app keeps it (`keep_for`).
    """
    encoded = check(signed).flow
    text = read_flow(encoded)
    with _BUILDING, _modules_of(text, encoded, directory, keep_for) as written:
        yield _graph(text, written) if text.files else _shipped_graph(text)


def _graph(text: FlowText, written: str) -> Graph:
    return _checked(text, load_flows(written, text.ends.ends(), text.settings))


def _shipped_graph(text: FlowText) -> Graph:
    """Return the graph of an application, cached by its options: a graph is immutable."""
    place = msgspec.msgpack.encode(msgspec.structs.replace(text, called=""))
    graph = _shipped_graphs.pop(place, None) or _graph(text, text.written)
    _shipped_graphs[place] = graph
    if len(_shipped_graphs) > SHIPPED_MAX:
        _shipped_graphs.popitem(last=False)
    return graph


def _checked(text: FlowText, flows: Sequence[Flow]) -> Graph:
    flow = next((one for one in flows if one.name == text.name), None)
    if flow is None:
        raise FlowError(f"{text.written} builds no flow {text.name!r} here; does its name depend on the machine?")
    graph = compile_flow(flow, chaining=text.chaining)
    if graph.fingerprint != text.fingerprint:
        raise FlowError(
            f"flow {text.name!r} has another structure here than where it was submitted; it must not depend on the "
            "machine or the time, and Headwater's versions must agree"
        )
    return graph


@contextmanager
def _modules_of(text: FlowText, encoded: bytes, directory: Path, keep_for: str | None) -> Iterator[str]:
    """Write a flow's files to a folder, put that first on the import path, and yield what to load."""
    if not text.files:
        yield text.written
        return
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # a text may contain passwords
    place = (directory / blake2b(encoded, digest_size=10).hexdigest()).resolve()  # as their functions name the files
    sys.path.insert(0, str(place))
    building = text_being_built.set(place)
    try:
        _lay_out(text, place)
        with only_beside(place):
            yield str(place / text.written)
            if keep_for is not None:
                _keep(place, keep_for)
    finally:
        text_being_built.reset(building)
        sys.path.remove(str(place))
        if place not in _keepers and str(place) not in sys.path:  # an outer block may be building it too
            shutil.rmtree(place, ignore_errors=True)


def _keep(place: Path, app: str) -> None:
    """Keep a text's folder for an app, so that its functions find their modules; its earlier text is released."""
    _keepers.setdefault(place, set()).add(app)
    _let_go(place.parent, app, but=place)
    modules = modules_in(place)
    know_text(place, modules)
    remember_built(place, modules)


def forget_app(directory: Path, app: str) -> None:
    """Release the text of an app that has left this node; it is deleted with the last app, as it may have passwords."""
    with _BUILDING:
        _let_go(directory.resolve(), app)


def _let_go(directory: Path, app: str, but: Path | None = None) -> None:
    for place in [one for one, apps in _keepers.items() if one.parent == directory and app in apps and one != but]:
        _keepers[place].discard(app)
        if not _keepers[place]:
            _delete(place)


def _delete(place: Path) -> None:
    _keepers.pop(place, None)
    forget_text(place)
    shutil.rmtree(place, ignore_errors=True)


def _lay_out(text: FlowText, place: Path) -> None:
    try:
        for name, source in text.files.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, encoding="utf-8")
    except OSError as failure:
        raise FlowError(f"the files of flow {text.name!r} cannot be written: {failure}") from failure


def forget_texts(directory: Path) -> None:
    """Delete all texts; apps write theirs again when they are started."""
    with _BUILDING:
        for place in [place for place in _keepers if place.parent == directory.resolve()]:
            _delete(place)
        shutil.rmtree(directory, ignore_errors=True)


def _files_of(path: Path) -> dict[str, str]:
    """Return a Python file and all modules beside it that it imports, directly or not, by name."""
    found: dict[str, str] = {}
    waiting = [path]
    while waiting:
        one = waiting.pop()
        name = one.relative_to(path.parent).as_posix()
        if name in found:
            continue
        if len(found) >= FILES_MAX:
            raise FlowError(
                f"{path} imports more than {FILES_MAX} modules beside it; install them on the nodes instead"
            )
        found[name] = _source_of(one)
        waiting += _beside(path.parent, _imported(found[name], one))
    return found


def _source_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as failure:
        raise FlowError(f"{path} is not UTF-8 text, and only that can travel; save it as UTF-8") from failure
    except OSError as failure:
        raise FlowError(f"{path} cannot be read: {failure.strerror}") from failure


def _imported(source: str, path: Path) -> set[str]:
    """Return the modules that a file imports; none if it is not Python, since then the flow was built without it."""
    names: set[str] = set()
    try:
        tree = parsed(source, path)
    except (SyntaxError, ValueError):
        return names
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                names |= {alias.name.partition(".")[0] for alias in aliases}
            case ast.ImportFrom(module=str(module), level=0):
                names.add(module.partition(".")[0])
    return names


def _beside(directory: Path, names: set[str]) -> Iterator[Path]:
    for name in sorted(names):
        if (directory / f"{name}.py").is_file():
            yield directory / f"{name}.py"
        elif (directory / name / "__init__.py").is_file() or _is_namespace(name, directory / name):
            yield from sorted((directory / name).rglob("*.py"))


def _is_namespace(name: str, directory: Path) -> bool:
    """Whether this directory without `__init__.py` is the imported namespace package of the name."""
    module = sys.modules.get(name)
    if module is None or getattr(module, "__file__", None) is not None:
        return False
    return str(directory) in {str(Path(place).resolve()) for place in getattr(module, "__path__", ())}
