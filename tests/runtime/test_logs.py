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
