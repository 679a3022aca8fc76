"""Shared by commands: sub-commands, as in `millstream topics list`, and errors on one line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import typer

from millstream.errors import MillstreamError

_NONE: Final[Mapping[str, Callable[..., None]]] = MappingProxyType({})


def command_group(about: str, commands: Mapping[str, Callable[..., None]] = _NONE) -> typer.Typer:
    """A Typer application that prints its help if no command is given. `about`: a sentence for that help."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=about)
    for name, command in commands.items():
        app.command(name)(command)
    return app


def path_of(text: str) -> Path:
    """The path in a flag. An empty one, as of a variable that is not set, would be the current folder."""
    if not text.strip():
        raise typer.BadParameter("the path is empty")
    return Path(text)


@contextlib.contextmanager
def one_sentence_errors() -> Generator[None]:
    """Prints an error on one line, with its hint, and exits with code 1."""
    try:
        yield
    except MillstreamError as error:
        hint = f"; {_continued(error.hint.rstrip('.'))}" if error.hint else ""
        print(f"error: {error.message.rstrip('.')}{hint}", file=sys.stderr)
        raise typer.Exit(1) from None


def _continued(hint: str) -> str:
    """The hint as the second half of a sentence; a keyword or a name at its beginning stays as it is."""
    word, separator, rest = hint.partition(" ")
    return f"{word if word[1:] != word[1:].lower() else word.lower()}{separator}{rest}"
