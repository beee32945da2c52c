"""What the tests of the console share: flow files to run, and the command in this process or in one of its own."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.console.main import app
from tests.console.flows import Command, Start, Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file for this test."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


@pytest.fixture
def headwater() -> Command:
    """Return the command, called in this process."""

    def call(*words: Any) -> Result:
        return CliRunner().invoke(app, [str(word) for word in words])

    return call


@pytest.fixture
def start() -> Start:
    """Return the command, started as a process of its own."""

    def begin(*words: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "headwater", *(str(word) for word in words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return begin
