"""The locks hold what pyproject.toml asks for: a fresh machine gets the very files that ours has."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent
PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: Final[dict[str, list[str]]] = PROJECT["project"]["optional-dependencies"]

ASKED: Final[dict[str, list[str]]] = {
    "build": PROJECT["build-system"]["requires"],
    "dev": [*PROJECT["project"]["dependencies"], *EXTRAS["bench"], *EXTRAS["dev"], *EXTRAS["models"]],
    "java": EXTRAS["java"],
    "fuzz": EXTRAS["fuzz"],
}


def locked(name: str) -> list[tuple[Requirement, int]]:
    """What a lock holds: each package with its version, and how many hashes its files have."""
    text = (ROOT / "locks" / f"{name}.txt").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(Requirement(line.split("--hash=")[0]), line.count("--hash=sha256:")) for line in lines]


@pytest.mark.parametrize("name", ASKED)
def test_a_lock_has_a_version_of_everything_that_is_asked_for(name: str) -> None:
    """Forgotten after a change of pyproject.toml, it would keep a fresh machine at what was: ./dev lock renews it."""
    versions = {canonicalize_name(one.name): one.specifier for one, _ in locked(name)}
    for asked in map(Requirement, ASKED[name]):
        [pinned] = versions[canonicalize_name(asked.name)]
        assert pinned.operator == "=="
        assert asked.specifier.contains(pinned.version), f"./dev lock: {asked} is asked for, locked is {pinned.version}"


@pytest.mark.parametrize("name", ASKED)
def test_every_file_of_a_lock_is_known_by_its_hash_and_by_no_address(name: str) -> None:
    assert all(hashes > 0 for _, hashes in locked(name))
    assert not re.search(r"https?:|file:|--(extra-)?index-url", (ROOT / "locks" / f"{name}.txt").read_text())
