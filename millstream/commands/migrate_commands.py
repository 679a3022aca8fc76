"""The commands `millstream migrate`: versioned changes of a server's streams, tables and queries, in files."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from millstream.errors import ServerError

from .command_line import command_group, one_sentence_errors

if TYPE_CHECKING:
    from ..migrations.applying import Migrator
    from ..migrations.files import MigrationProject

ConfigOption = Annotated[
    Path, typer.Option("--config-file", "-c", metavar="FILE", help="The project's properties file.")
]
_DEFAULT_CONFIG = Path("ksql-migrations.properties")


class WrongMigrateUsage(ServerError):
    """Flags of `millstream migrate` that are missing, invalid or exclude each other."""

    code = "WRONG_MIGRATE_USAGE"


def migrate_app() -> typer.Typer:
    app = command_group("Migrations, as with ksql-migrations, and resumable after a failure.", _COMMANDS)
    app.callback()(_before_the_command)
    return app


def _before_the_command(
    context: typer.Context,
    config_file: Annotated[
        Path | None, typer.Option("--config-file", "-c", metavar="FILE", help="The same as after the command.")
    ] = None,
) -> None:
    if config_file is not None:  # where ksql-migrations has it
        context.default_map = {name: {"config_file": config_file} for name in _COMMANDS}


def new_project_command(folder: Path, server: Annotated[str, typer.Argument(metavar="URL")]) -> None:
    """Create a folder with a properties file and `migrations/`."""
    with one_sentence_errors():
        from ..migrations.files import new_project

        for made in new_project(folder, server):
            typer.echo(f"created {made}")


def create_command(
    description: Annotated[list[str], typer.Argument(help="What it does, as add_users.")],
    version: Annotated[int | None, typer.Option("--version", "-v", help="Default: the next version.")] = None,
    config_file: ConfigOption = _DEFAULT_CONFIG,
) -> None:
    """Create an empty file for the next migration."""
    with one_sentence_errors():
        from ..migrations.files import create_file

        typer.echo(f"created {create_file(_project(config_file), ' '.join(description), version)}")


def initialize_command(config_file: ConfigOption = _DEFAULT_CONFIG) -> None:
    """Create the metadata (a stream and a table) on the server."""
    with _migrator(config_file) as migrator:
        made = migrator.ledger.initialize()
        typer.echo("metadata created" if made else "the metadata exists already")


def apply_command(
    next_: Annotated[bool, typer.Option("--next", "-n", help="Apply the next one.")] = False,
    every: Annotated[bool, typer.Option("--all", "-a", help="Apply all pending ones.")] = False,
    until: Annotated[int | None, typer.Option("--until", "-u", metavar="N", help="Apply all up to version N.")] = None,
    version: Annotated[int | None, typer.Option("--version", "-v", metavar="N", help="Apply only version N.")] = None,
    define: Annotated[
        list[str] | None, typer.Option("--define", "-d", metavar="NAME=VALUE", help="Define a variable. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check and print the statements; run none.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a migration that is recorded as running but is not.")
    ] = False,
    done: Annotated[
        bool, typer.Option("--statement-done", help="A statement with unknown outcome has run: do not run it again.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--statement-again", help="A statement with unknown outcome has not run: run it.")
    ] = False,
    config_file: ConfigOption = _DEFAULT_CONFIG,
) -> None:
    """Apply pending migrations. After a failure in the middle of a file, the next run continues there."""
    with _migrator(config_file) as migrator:
        from ..migrations.applying import Selection

        given = [next_, every, until is not None, version is not None].count(True)
        if given != 1:
            what = "--next, --all, --until and --version exclude each other" if given else "no migrations are given"
            raise WrongMigrateUsage(what, hint="Give one of --next, --all, --until, --version.")
        if done and again:
            raise WrongMigrateUsage("--statement-done and --statement-again exclude each other")
        selection = Selection(next_, every, until, version)
        variables = dict(map(_variable, define or ()))
        unclear = "done" if done else "again" if again else "ask"
        applied = migrator.apply(selection, variables, dry_run=dry_run, resume=resume, unclear=unclear)
        if not applied:
            typer.echo("nothing to apply")


def info_command(config_file: ConfigOption = _DEFAULT_CONFIG) -> None:
    """Print the version of the server, and the state of each migration."""
    with _migrator(config_file) as migrator:
        from millstream.repl.text.tables import render_table

        events = migrator.ledger.read()
        typer.echo(f"current version: {events.current() or '<none>'}")
        rows: list[list[object]] = []
        for migration in migrator.project.migrations():
            event = events.of(migration.version)
            progress = events.progress_of(migration.version)
            state = events.state_of(migration.version)
            at = "" if progress is None or state == "MIGRATED" else str(progress.statement)
            times = ("", "") if event is None else (event.started_on, event.completed_on)
            error = "" if event is None or event.error_reason == "N/A" else event.error_reason
            rows.append([migration.version, migration.name, state, at, *times, error])
        titles = ["Version", "Name", "State", "Statement", "Started on", "Completed on", "Error reason"]
        typer.echo("\n".join(render_table(titles, rows, None)))
        for name in migrator.project.ignored:
            typer.echo(f"warning: {name} in {config_file} is unknown and ignored", err=True)


def validate_command(config_file: ConfigOption = _DEFAULT_CONFIG) -> None:
    """Check that the files of applied migrations are unchanged. Exit code 1 if one has changed."""
    with _migrator(config_file) as migrator:
        problems = migrator.problems(migrator.ledger.read())
        for problem in problems:
            typer.echo(problem.message)
        if problems:
            raise typer.Exit(1)
        typer.echo("all applied migrations are unchanged")


def destroy_command(config_file: ConfigOption = _DEFAULT_CONFIG) -> None:
    """Drop the metadata; streams, tables and queries of the migrations are kept."""
    with _migrator(config_file) as migrator:
        typer.echo("metadata dropped" if migrator.ledger.destroy() else "there is no metadata")


def _project(config_file: Path) -> MigrationProject:
    from ..migrations.files import load_project

    return load_project(config_file)


@contextmanager
def _migrator(config_file: Path) -> Generator[Migrator]:
    with one_sentence_errors():
        from millstream.server.client import connect

        from ..migrations.applying import Migrator

        project = _project(config_file)
        yield Migrator(project, lambda: connect(project.server), typer.echo)


def _variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise WrongMigrateUsage(f'"{text}" is not a variable', hint="Write --define NAME=VALUE.")
    return name.strip(), value


_COMMANDS: Final[Mapping[str, Callable[..., None]]] = {
    "new-project": new_project_command,
    "create": create_command,
    "initialize-metadata": initialize_command,
    "apply": apply_command,
    "info": info_command,
    "validate": validate_command,
    "destroy-metadata": destroy_command,
}
