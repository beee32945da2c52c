"""The log: where it goes, and how much of it there can be."""

import logging
from pathlib import Path

from headwater.runtime.logs import FILE_BYTES_MAX, OLDER_FILES, LogFormat, log_to

log = logging.getLogger(__name__)


def test_a_log_file_has_a_limit_and_the_latest_lines_are_kept(tmp_path: Path) -> None:
    """A node logs for as long as it runs, beside its store."""
    said = "x" * (FILE_BYTES_MAX // 10)
    with log_to(LogFormat.TEXT, tmp_path / "node.log"):
        for number in range(20 * (OLDER_FILES + 1)):
            log.warning("%d %s", number, said)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["node.log", "node.log.1", "node.log.2", "node.log.3"]
    assert max(file.stat().st_size for file in files) <= FILE_BYTES_MAX
    assert f"{20 * (OLDER_FILES + 1) - 1} x" in files[0].read_text()


def test_what_others_say_neither_works_a_terminal_nor_looks_like_a_line_of_its_own(tmp_path: Path) -> None:
    """An app's name, a zone or an error may be anybody's words."""
    file = tmp_path / "node.log"
    with log_to(LogFormat.TEXT, file):
        log.warning("refused %s", "\x1b[2J\u202eevil\r\n00:00:00 info runtime.node: all is well\t(é)")
    first, second = file.read_text().splitlines()
    assert first.endswith(r"refused \x1b[2J\u202eevil\r")
    assert second == "  00:00:00 info runtime.node: all is well\t(é)"
