"""The secret of a data directory. A process that can read it may do what Millstream's own processes do."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path
from typing import Final

import structlog

from .errors import unusable_directory

_NAME: Final = "secret"
_SECRET: Final = re.compile(rb"[0-9a-f]{64}")
_log = structlog.get_logger("millstream.logcore")


def secret_of(folder: Path) -> str:
    """The secret, which is created on first use. Only the owner of the folder can read the file. Raises `LogError`.

    A damaged file is replaced: processes read the file when they start, so running processes do not need it again.
    """
    path = folder / _NAME
    try:
        if path.exists() and not _SECRET.fullmatch(path.read_bytes().strip()):
            _log.warning("the secret of the log was damaged, and is made anew", path=str(path))
            path.unlink()
        if not path.exists():
            _write(path)
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise unusable_directory(error, folder) from error


def _write(path: Path) -> None:
    """Two processes that write at the same time get the same file."""
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
