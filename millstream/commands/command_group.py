"""Commands below a command, as in `millstream topics list`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import typer

_NONE: Final[Mapping[str, Callable[..., None]]] = MappingProxyType({})


def command_group(about: str, commands: Mapping[str, Callable[..., None]] = _NONE) -> typer.Typer:
    """A Typer application that prints its help where no command is named. `about`: a sentence for that help."""
    app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=about)
    for name, command in commands.items():
        app.command(name)(command)
    return app
