"""The secret of a data directory: whoever can read it may do what Millstream's own processes do."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Final

from .errors import write_error

_NAME: Final = "secret"


def secret_of(folder: Path) -> str:
    """Made when it is first asked for; only the owner of the folder can read the file. Raises `LogError`."""
    path = folder / _NAME
    try:
        if not path.exists():
            _write(path)
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise write_error(error, f"the secret of the log, {path}") from error


def _write(path: Path) -> None:
    """Two processes that write at the same time end up with the same file."""
    draft = path.with_name(f"{_NAME}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32))
    try:
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
