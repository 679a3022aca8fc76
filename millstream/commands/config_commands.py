"""The commands `millstream config`: check a server's configuration, show the effective one, print the reference."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer

from .command_line import command_group, one_sentence_errors

FileArgument = Annotated[Path | None, typer.Argument(envvar="MILLSTREAM_CONFIG", help="A TOML file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def config_app() -> typer.Typer:
    return command_group(
        "Configuration of a server: check, show, reference.",
        {
            "check": check,
            "show": show,
            "reference": reference,
        },
    )


def check(file: FileArgument = None, json: JsonOption = False) -> None:
    """Check a file and the environment. Exit code 1 if a server would refuse them."""
    with one_sentence_errors():
        from millstream.server.config.configuration_check import check_file, check_variables

        findings = check_variables() if file is None else check_file(file)
        if json:
            typer.echo(json_module.dumps([_object(finding) for finding in findings], indent=2))
        else:
            for finding in findings:
                place = "" if not finding.line else f"{file}:{finding.line}:{finding.column}: "
                hint = f"\n  hint: {finding.hint}" if finding.hint else ""
                typer.echo(f"{place}{finding.level}: {finding.message}{hint}")
            if not findings:
                typer.echo("no problems")
        if any(finding.level == "error" for finding in findings):
            raise typer.Exit(1)


def show(
    file: FileArgument = None,
    data: Annotated[Path | None, typer.Option(help="As for `millstream server`.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Include defaults.")] = False,
    json: JsonOption = False,
) -> None:
    """Print the effective configuration and the origin of each value. Secrets are masked."""
    with one_sentence_errors():
        from millstream.repl.text.tables import render_table
        from millstream.server.config.configuration_check import effective

        values = [each for each in effective(file, {"data": data}) if all_ or each.source != "default"]
        if json:
            typer.echo(json_module.dumps([_object(each) for each in values], indent=2))
            return
        rows: list[list[object]] = [[each.name, each.value, each.source] for each in values]
        typer.echo("\n".join(render_table(["Setting", "Value", "From"], rows, None)))


def reference() -> None:
    """Print every setting and property with its unit, default and meaning, as Markdown."""
    from millstream.server.config.configuration_reference import reference_tables

    typer.echo(reference_tables(), nl=False)


def _object(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in type(record).__slots__}
