"""The file of commands and statements that a conversation begins with."""

from __future__ import annotations

import os
from pathlib import Path


def startup_file() -> Path:
    """In the user's configuration directory, where XDG says it is."""
    configuration = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(configuration).expanduser() / "millstream" / "shellrc"
