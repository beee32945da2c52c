"""Apps whose flows have modules of the same names beside them, in the same processes, each with its own."""

import sys
import sysconfig
from pathlib import Path

import pytest

from headwater.client.cluster import Cluster
from headwater.model.errors import StoreError
from headwater.runtime.service.service import NodeService
from tests.runtime.service.few_nodes import FewNodes

ROWS = 3_000

# In each of these ways a function comes to a module beside its flow when it runs; `who` says whose it was.
WAYS = {
    "a module": ("", "import tools", "tools.WHO"),
    "a name of a module": ("", "from tools import WHO", "WHO"),
    "what another module imports when it is called": ("import caller", "", "caller.who()"),
    "a further module of a package": ("import pack.one", "import pack.two", "pack.one.WHO + pack.two.WHO[1:]"),
    "a further module, from within the package": ("from pack.one import who", "", "who()"),
    "a module by its name": ("import importlib", "found = importlib.import_module('tools')", "found.WHO"),
    "a further module by its name": (
        "import pack.one; from importlib import import_module",
        "found = import_module('pack.two')",
        "found.WHO",
    ),
    "a further module by its name in the package": (
        "import pack.one; from importlib import import_module",
        "found = import_module('.two', 'pack')",
        "found.WHO",
    ),
}
FLOW = """
import headwater as hw
{at_top}

def with_who(row: hw.Row) -> hw.Row:
    {in_function}
    return {{"n": row["n"], "who": {who}}}

def numbers(first: int, count: int) -> dict:
    import tools
    return {{"n": list(range(first, first + count)), "source": [tools.WHO] * count}}

rows = hw.read.generator(numbers, rows={rows}, rate=1_000)
flow = hw.flow("{name}", rows.map(with_who).sink(hw.to.json("{out}")))
"""


def write_flow(directory: Path, name: str, way: str) -> Path:
    """Write a flow with its modules, which all say whose they are."""
    at_top, in_function, who = WAYS[way]
    (directory / "pack").mkdir(parents=True)
    says = f"WHO = {name!r}\n"
    (directory / "tools.py").write_text(says)
    (directory / "caller.py").write_text("def who():\n    import tools\n    return tools.WHO\n")
    (directory / "pack" / "__init__.py").write_text("")
    (directory / "pack" / "one.py").write_text(says + "def who():\n    from . import two\n    return two.WHO\n")
    (directory / "pack" / "two.py").write_text(says)
    out = directory / "out.jsonl"
    file = directory / "flow.py"
    file.write_text(
        FLOW.format(
            at_top=at_top or "import pack.one",
            in_function=in_function or "pass",
            who=who,
            rows=ROWS,
            name=name,
            out=out,
        )
    )
    return file


def written(directory: Path) -> list[str]:
    """Return the lines that an app has written."""
    return (directory / "out.jsonl").read_text().splitlines()


@pytest.mark.parametrize("way", WAYS)
def test_an_app_has_its_own_modules_whatever_another_calls_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Each is built, and begins to run, while the other does; what it reads is made with its own, too."""
    monkeypatch.chdir(tmp_path)
    files = {name: write_flow(tmp_path / name, name, way) for name in ("a", "b")}
    with FewNodes(Path("nodes")) as few:  # as `headwater node --data nodes` has it
        node = few.add()
        with Cluster(node.own.address, insecure=True) as cluster:
            for file in files.values():
                cluster.submit(str(file))
            for name, file in files.items():
                told = cluster.wait(name, 100)
                assert told.errors == []
                assert written(file.parent) == [f'{{"n":{n},"who":"{name}"}}' for n in range(ROWS)]


def test_the_text_of_an_app_is_deleted_with_it(tmp_path: Path) -> None:
    """There may be passwords in it. Another app with the very same text keeps it."""
    file = write_flow(tmp_path / "a", "a", "a module")
    with FewNodes(tmp_path / "nodes") as few:
        node = few.add()
        texts = node.settings.flows
        with Cluster(node.own.address, insecure=True) as cluster:
            cluster.submit(str(file))
            cluster.wait("a", 100)
            assert [path.name for path in texts.glob("*/flow.py")] == ["flow.py"]
            assert not [path for path in sys.path if path.startswith(str(texts))], "others would find what is there"
            cluster.upgrade("a", str(file), only_check=True)
            assert len(list(texts.iterdir())) == 1
            cluster.stop("a")
        assert list(texts.iterdir()) == []


def test_a_second_node_on_the_same_data_is_refused_and_deletes_nothing_of_the_first(tmp_path: Path) -> None:
    """The functions of the first one's apps have yet to import what is beside their flows."""
    file = write_flow(tmp_path / "a", "a", "a module")
    with FewNodes(tmp_path / "nodes") as few:
        node = few.add()
        with Cluster(node.own.address, insecure=True) as cluster:
            cluster.submit(str(file))
            cluster.wait("a", 100)
            there = sorted(node.settings.flows.rglob("*.py"))
            with pytest.raises(StoreError, match="in use by another node"):
                few.do(NodeService(node.settings).start())
            assert sorted(node.settings.flows.rglob("*.py")) == there != []


ONE_FILE = """
import headwater as hw
import {name}

def with_who(row: hw.Row) -> hw.Row:
    return {{"who": {name}.__file__}}

flow = hw.flow("{flow}", hw.read.iterable([{{"n": 1}}]).map(with_who).sink(hw.to.json("{out}")))
"""


def test_what_lies_beside_one_flow_is_not_found_by_another(tmp_path: Path) -> None:
    """Neither by one that means Python's own module of that name, nor by the node itself."""
    name = "zipapp"  # which nobody else imports
    for directory in ("a", "b"):
        (tmp_path / directory).mkdir()
        out = tmp_path / directory / "out.jsonl"
        (tmp_path / directory / "flow.py").write_text(ONE_FILE.format(name=name, flow=directory, out=out))
    (tmp_path / "a" / f"{name}.py").write_text("")
    with FewNodes(tmp_path / "nodes") as few:
        node = few.add()
        with Cluster(node.own.address, insecure=True) as cluster:
            for directory in ("a", "b"):
                cluster.submit(str(tmp_path / directory / "flow.py"))
                assert cluster.wait(directory, 100).errors == []
    found = {directory: set(written(tmp_path / directory)) for directory in ("a", "b")}
    assert all(str(node.settings.flows) in line for line in found["a"])
    assert found["b"] == {f'{{"who":"{sysconfig.get_path("stdlib")}/{name}.py"}}'}
    sys.modules.pop(name, None)
