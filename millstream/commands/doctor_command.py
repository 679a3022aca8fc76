"""The command `millstream doctor`."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .addresses import VARIABLE
from .command_line import one_sentence_errors


def doctor(
    data: Annotated[Path | None, typer.Option(help="A data folder to check.")] = None,
    server: Annotated[
        str | None, typer.Option(envvar=VARIABLE, metavar="URL", help="A running server to check.")
    ] = None,
    config: Annotated[Path | None, typer.Option(envvar="MILLSTREAM_CONFIG", help="A server's TOML file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check this machine, a data folder and a server. Exit code 1 if a check fails; warnings do not count.

    It changes nothing.
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
