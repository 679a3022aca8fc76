"""Shared by commands: sub-commands, as in `millstream topics list`, and errors in plain words, on one line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import typer
from typer.core import TyperGroup

from millstream.errors import MillstreamError

from .standard_streams import ending_when_nobody_reads

_NONE: Final[Mapping[str, Callable[..., None]]] = MappingProxyType({})


class RootGroup(TyperGroup):
    """All commands. Wrong flags and arguments are explained in our words, where typer repeats those of pydantic; and
    output that nobody reads is no failure, as it is for typer."""

    def make_context(self, *args: Any, **extra: Any) -> Any:
        with ending_when_nobody_reads():  # --help and --version print here
            return super().make_context(*args, **extra)

    def invoke(self, ctx: Any) -> Any:
        try:
            with ending_when_nobody_reads():
                return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.__cause__ is not None:
                error.message = _plain(error.__cause__, error.message)
            raise


def _plain(cause: BaseException, message: str) -> str:
    from pydantic import ValidationError

    from millstream.server.config.validation_reasons import reason_of

    return reason_of(cause.errors()[0]) if isinstance(cause, ValidationError) else message


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
    """Prints an error on one line, with its hint, and exits with code 1. A hint has its own line below a statement that
    the error shows."""
    try:
        yield
    except MillstreamError as error:
        message, hint = error.message.rstrip("."), (error.hint or "").rstrip(".")
        *shown, last = message.split("\n")
        if hint and shown and not last.startswith("hint: "):
            hint = f"\nhint: {hint}"
        elif hint:
            hint = f"; {_continued(hint)}"
        print(f"error: {message}{hint}", file=sys.stderr)
        raise typer.Exit(1) from None


def _continued(hint: str) -> str:
    """The hint as the second half of a sentence; a keyword or a name at its beginning stays as it is."""
    word, separator, rest = hint.partition(" ")
    return f"{word if word[1:] != word[1:].lower() else word.lower()}{separator}{rest}"
