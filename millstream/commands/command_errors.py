"""How commands end when they cannot go on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Generator

import typer

from millstream.errors import MillstreamError


@contextlib.contextmanager
def one_sentence_errors() -> Generator[None]:
    """What keeps a command from working, on one line, and exit code 1."""
    try:
        yield
    except MillstreamError as error:
        hint = f"; {error.hint[0].lower()}{error.hint[1:].rstrip('.')}" if error.hint else ""
        print(f"error: {error.message.rstrip('.')}{hint}", file=sys.stderr)
        raise typer.Exit(1) from None
