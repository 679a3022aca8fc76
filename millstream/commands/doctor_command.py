"""The command `millstream doctor`."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .command_line import one_sentence_errors


def doctor(
    data: Annotated[Path | None, typer.Option(help="A data directory to look at.")] = None,
    server: Annotated[str | None, typer.Option(metavar="URL", help="A running server to ask.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="MILLSTREAM_CONFIG", help="A server's TOML file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Look at this machine, a data directory and a server, and say what is wrong; exit code 1 where something is.

    What is only to be looked at is a warning. Nothing is changed.
    """
    with one_sentence_errors():
        from ..doctor import checks
        from ..doctor.running_server import server as ask

        lines = [*checks.machine(), *checks.configured(config)]
        configuration = checks.configuration_of(config, data)
        if configuration is not None:
            lines += checks.ports(configuration)
            if data is not None or config is not None:
                lines += checks.data_directory(configuration.data)
        if server is not None:
            lines += ask(server)
    if json:
        typer.echo(json_module.dumps([asdict(line) for line in lines], indent=2))
    else:
        for line in lines:
            typer.echo(f"{line.level:<4} {line.check:<13} {line.message}")
            if line.hint and line.level != "ok":
                typer.echo(f"{'':<19}hint: {line.hint}")
    if any(line.level == "fail" for line in lines):
        raise typer.Exit(1)
