"""What the documents print, runs, and what they point to is there.

The Python blocks of a document form one program: they share their names and run in order, in an empty directory, each
at the line it has in the document, so that a traceback points there. Marks in a fence or block:

- ```` ```python no-run ```` is shown only;
- a block that begins with `# file: NAME.py` is also saved under that name, before anything runs, so that other blocks
  can name the file.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
DOCUMENTS: Final = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "apps/README.md") if (ROOT / name).exists()),
    *sorted((ROOT / "docs").rglob("*.md")),
]
TEXTS: Final = sorted(page for room in ("docs", "apps", "bench") for page in (ROOT / room).rglob("*.md"))
LINK: Final = re.compile(r"\]\((?P<target>[^)#\s]+)(#[^)]*)?\)")
RUN_TIMEOUT_S: Final = 500.0  # below the limit of a test, so that the document's own output is shown

BLOCK: Final = re.compile(
    r"^(?P<indent> *)```python *(?P<mark>[^\n]*)\n(?P<code>.*?)^ *``` *$", re.DOTALL | re.MULTILINE
)
FILE: Final = re.compile(r"# file: (?P<name>[\w-]+\.py)\s*$", re.MULTILINE)


def blocks(text: str) -> list[tuple[int, str]]:
    """Return the code to run, each with the number of lines above it."""
    return [
        (text.count("\n", 0, found.start("code")), _outdented(found["code"], len(found["indent"])))
        for found in BLOCK.finditer(text)
        if found["mark"].strip() != "no-run"
    ]


def _outdented(code: str, columns: int) -> str:
    return re.sub(rf"^ {{1,{columns}}}", "", code, flags=re.MULTILINE) if columns else code


def program(text: str) -> str:
    """Return a document's blocks as one program in which every line has its number in the document."""
    whole = ""
    for line, code in blocks(text):
        whole += "\n" * (line - whole.count("\n")) + code
    return whole


def files(text: str) -> dict[str, str]:
    """Return the files that a document shows, by name."""
    return {named["name"]: code for _, code in blocks(text) if (named := FILE.match(code))}


def run(document: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a document in this directory, under the document's own name."""
    text = document.read_text(encoding="utf-8")
    for name, code in files(text).items():
        (directory / name).write_text(code, encoding="utf-8")
    script = directory / document.name
    script.write_text(program(text), encoding="utf-8")
    return subprocess.run(
        [sys.executable, script], cwd=directory, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )


@pytest.mark.skipif(not DOCUMENTS, reason="there is no README.md yet")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_in_a_document_runs(document: Path, tmp_path: Path) -> None:
    done = run(document, tmp_path)
    assert done.returncode == 0, f"{document.name} does not run as printed:\n{done.stdout}\n{done.stderr}"


SAMPLE: Final = """\
# Title

```python
# file: flow.py
answer = 42
```

Not to be run:

```python no-run
raise SystemExit("ran what is only shown")
```

```bash
exit 1
```

1. In a list:

   ```python
   from pathlib import Path

   import flow

   assert flow.answer == answer == 42
   assert Path("flow.py").exists()
   ```
"""


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")) + TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_points_to_is_there(document: Path) -> None:
    """Pictures and other pages of this repository; the world outside is not asked."""
    pointed = {found["target"] for found in LINK.finditer(document.read_text(encoding="utf-8"))}
    inside = [target for target in pointed if "://" not in target]
    assert [target for target in inside if not (document.parent / target).exists()] == []


def test_blocks_share_their_names_and_find_the_files_shown(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "README.md").write_text(SAMPLE)
    done = run(tmp_path / "README.md", tmp_path / "in")
    assert done.returncode == 0, done.stderr


def test_a_block_that_fails_is_named_by_its_line_in_the_document(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "README.md").write_text(SAMPLE.replace("== 42", "== 43"))
    done = run(tmp_path / "README.md", tmp_path / "in")
    line = SAMPLE[: SAMPLE.index("assert flow")].count("\n") + 1
    assert done.returncode == 1
    assert f'README.md", line {line}' in done.stderr
