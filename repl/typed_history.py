"""The history of the shell, in a file of the user. Leaves out secrets in URLs, CREATE SECRET, connectors and
settings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from ..executor.connect.secret_statements import without_secret_values
from ..sql.settings.secret_values import HIDDEN, is_secret_name, without_assigned_secrets

_PASSWORD: Final = re.compile(r"(://[^\s:/@'\"\[]*):(?!\d+(?:[/?#'\"\s]|$))[^\s'\"]+@")
"""A password before the last @, which may contain characters that should have been escaped; but not a port."""
_PARAMETER: Final = re.compile(r"([?&;](?P<name>[\w.%-]+)=)(?!\$\{)[^\s&;#'\"]+")
_ENTRIES_MAX: Final = 10_000
_BYTES_MAX: Final = 4 * 1024 * 1024  # above this, a new file is written with the latest entries


class TypedHistory(FileHistory):
    """A history that stores no passwords."""

    def store_string(self, string: str) -> None:
        super().store_string(without_passwords(string))


def state_folder() -> Path:
    """The user's state directory, as XDG defines it."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "millstream"


def history_file() -> Path:
    return state_folder() / "history"


def open_history() -> History:
    """The history; kept only in memory if the file cannot be written."""
    file = history_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
        file.chmod(0o600)
        _keep_small(file)
    except OSError:  # the home directory is not writable
        return InMemoryHistory()
    return TypedHistory(file)


def typed_entries(count: int | None = None) -> list[str]:
    """The last `count` entries that were typed, the latest one last."""
    most = _ENTRIES_MAX if count is None else count
    try:
        newest_first = list(islice(FileHistory(history_file()).load_history_strings(), most))
    except OSError:
        return []
    return newest_first[::-1]


def without_passwords(text: str) -> str:
    """
    >>> without_passwords("\\\\c http://ada:secret@127.0.0.1:8088")
    '\\\\c http://ada@127.0.0.1:8088'
    """
    shown = _PASSWORD.sub(r"\1@", without_assigned_secrets(without_secret_values(text)))
    return _PARAMETER.sub(_without_secret_parameter, shown)


def _without_secret_parameter(found: re.Match[str]) -> str:
    return found[1] + HIDDEN if is_secret_name(found["name"]) else found[0]


def _keep_small(file: Path) -> None:
    if file.stat().st_size <= _BYTES_MAX:
        return
    kept = list(_newest(FileHistory(file)))
    file.write_text("")
    history = FileHistory(file)
    for entry in reversed(kept):
        history.store_string(entry)


def _newest(history: FileHistory) -> Iterator[str]:
    room = _BYTES_MAX // 2
    for entry in history.load_history_strings():
        room -= len(entry.encode())
        if room < 0:
            return
        yield entry
