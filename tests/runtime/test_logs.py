"""The log: where it goes, and how much of it there can be."""

import gc
import logging
import weakref
from pathlib import Path

from headwater.runtime.logs import FILE_BYTES_MAX, OLDER_FILES, LogFormat, log_to
from headwater.runtime.service.recent_log import recent_lines, remember_log
from headwater.workers.log_context import Voice

log = logging.getLogger(f"headwater.{__name__}")


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


def test_what_was_in_hand_when_something_raised_is_not_kept_with_the_last_lines() -> None:
    """A message may have megabytes, and a thousand lines are kept for whoever asks for them."""

    class Message:
        pass

    def take(message: Message) -> None:
        try:
            raise ValueError("a mistake of ours")
        except ValueError:
            log.exception("a message was not taken")

    voice = Voice()
    message = Message()
    alive = weakref.ref(message)
    remember_log()
    log.propagate = False  # pytest keeps what it hears
    log.addHandler(ours := logging.getLogger("headwater").handlers[-1])
    try:
        take(message)
    finally:
        log.removeHandler(ours)
        log.propagate = True
    del message
    gc.collect()
    assert alive() is None
    assert "ValueError: a mistake of ours" in recent_lines("here", voice, 1)[0].text


def test_what_others_say_neither_works_a_terminal_nor_looks_like_a_line_of_its_own(tmp_path: Path) -> None:
    """An app's name, a zone or an error may be anybody's words."""
    file = tmp_path / "node.log"
    with log_to(LogFormat.TEXT, file):
        log.warning("refused %s", "\x1b[2J\u202eevil\r\n00:00:00 info runtime.node: all is well\t(é)")
    first, second = file.read_text().splitlines()
    assert first.endswith(r"refused \x1b[2J\u202eevil\r")
    assert second == "  00:00:00 info runtime.node: all is well\t(é)"
