"""A terminal for tests: a program runs in it, keys are typed into it, and its screen can be read."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte
from running_server import ENVIRONMENT

ENTER, TAB, ESCAPE = "\r", "\t", "\x1b"
CTRL_C, CTRL_D, CTRL_L, CTRL_R, CTRL_Z = "\x03", "\x04", "\x0c", "\x12", "\x1a"
DOWN, PAGE_DOWN = "\x1b[B", "\x1b[6~"

_ALTERNATE_SCREEN = 1049
_TAKEN = b"\x1b[?2004l"  # what is pasted is no longer put in brackets: the line editor has ended
_VOLATILE = (
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\d\d:\d\d:\d\d\b(?!Z)"), "HH:MM:SS"),
    (re.compile(r"[\d,]+/s"), "N/s"),
    (re.compile(r"run \d+ at"), "run N at"),
    (re.compile(r"Time: [\d,.]+ ms"), "Time: N ms"),
)


class _Screen(pyte.Screen):
    """With the second screen that full-screen programs draw on, which pyte does not know."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(columns, lines)
        self.alternate = False
        self._kept: tuple[Any, Any] | None = None

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        if kwargs.get("private") and _ALTERNATE_SCREEN in modes:
            self.alternate = True
            self._kept = (copy.deepcopy(self.buffer), copy.copy(self.cursor))
            self.erase_in_display(2)
        super().set_mode(*modes, **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if kwargs.get("private") and _ALTERNATE_SCREEN in modes and self._kept is not None:
            self.alternate = False
            self.buffer, self.cursor = self._kept
            self._kept = None
            self.cursor.y = min(self.cursor.y, self.lines - 1)  # it may have become smaller
            self.cursor.x = min(self.cursor.x, self.columns - 1)
            self.dirty.update(range(self.lines))


class PseudoTerminal:
    """Runs the command at once. `raw` is all that the program wrote."""

    def __init__(
        self, command: Sequence[str], *, home: Path, rows: int = 24, columns: int = 80,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._master, slave = pty.openpty()
        self._guard = threading.Lock()
        self._screen = _Screen(columns, rows)
        self._screen.write_process_input = self._answer  # pyrefly: ignore[method-assign] - asks where the cursor is
        self._stream = pyte.ByteStream(self._screen)
        self.raw = bytearray()
        self._set_size(rows, columns)
        own = {
            "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config"),
            "TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8",
        }  # fmt: skip
        dropped = ("NO_COLOR", "PAGER", "MILLSTREAM_PAGER", "LESS", "EDITOR", "VISUAL", "COLUMNS", "LINES")
        inherited = {name: value for name, value in ENVIRONMENT.items() if name not in dropped}
        self.process = subprocess.Popen(
            list(command), stdin=slave, stdout=slave, stderr=slave, env={**inherited, **own, **(environment or {})},
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        with self._guard:
            self._screen.resize(rows, columns)
        self._set_size(rows, columns)  # the kernel sends SIGWINCH

    def lines(self) -> list[str]:
        """The screen without blanks on the right and empty lines at the end; what differs each time has a word."""
        with self._guard:
            shown = [line.rstrip() for line in self._screen.display]
        while shown and not shown[-1]:
            shown.pop()
        for pattern, word in _VOLATILE:
            shown = [pattern.sub(word, line) for line in shown]
        return shown

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program has the screen."""
        return self._screen.alternate

    def wait(self, holds: Callable[[list[str]], object], seconds: float = 60.0) -> list[str]:
        """The screen, once that holds for it."""
        deadline = time.monotonic() + seconds
        while not holds(lines := self.lines()):
            assert time.monotonic() < deadline, "the screen never became so:\n" + "\n".join(lines)
            time.sleep(0.02)
        return lines

    def wait_for(self, text: str, seconds: float = 60.0) -> list[str]:
        """The screen, once it has the text somewhere."""
        return self.wait(lambda lines: any(text in line for line in lines), seconds)

    def wait_for_last(self, text: str, seconds: float = 60.0) -> list[str]:
        """The screen, once its last line is that."""
        return self.wait(lambda lines: bool(lines) and lines[-1] == text, seconds)

    def enter(self, text: str, prompt: str) -> list[str]:
        """Types a line and Enter; gives the screen once the line was taken and there is a prompt again."""
        self.type(text)
        self.wait(lambda lines: bool(lines) and lines[-1].endswith(text[-20:]))
        before = len(self.raw)
        self.type(ENTER)
        self.wait(lambda _: _TAKEN in self.raw[before:])  # until then, half of a line drawn anew looks like a prompt
        return self.wait_for_last(prompt)

    def wait_for_exit(self, seconds: float = 60.0) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        self._reader.join(60)
        with contextlib.suppress(OSError):
            os.close(self._master)

    def __enter__(self) -> PseudoTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._master, 65536)
            except OSError:  # nobody has the other end any more
                return
            if not data:
                return
            with self._guard:
                self.raw += data
                self._stream.feed(data)

    def _answer(self, data: str) -> None:
        os.write(self._master, data.encode())

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def shell_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "millstream", "sql", *arguments]
