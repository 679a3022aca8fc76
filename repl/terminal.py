"""Properties of the terminal: whether there is one, its size and its colours."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    """Whether the output is a screen on which the cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colours(stream: TextIO) -> bool:
    """Whether to use colours; NO_COLOR (no-color.org) turns them off."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def has_keys(stream: TextIO) -> bool:
    """Whether a person is present: a screen, and a keyboard as standard input."""
    return is_terminal(stream) and sys.stdin.isatty()


def width() -> int:
    return shutil.get_terminal_size().columns


def height() -> int:
    return shutil.get_terminal_size().lines
