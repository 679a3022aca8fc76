"""The commands `millstream log`: verify, print and repair the files of a data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.errors import ServerError

from .command_line import command_group, one_sentence_errors

DataArgument = Annotated[Path, typer.Argument(help="The data folder of a server, or the folder with node.json.")]

_NAMES = "Segment files are called 00000000000000000000.log and so on."
_STATE = ("-changelog", "-markers")


class NoSuchFiles(ServerError):
    """A folder or file does not exist, or cannot be read or written."""

    code = "NO_SUCH_FILES"


class NotRecordBatches(ServerError):
    """A file, or the end of one, has no record batches."""

    code = "NOT_RECORD_BATCHES"


class HoldsState(ServerError):
    """The topic contains the state of a query, which must not lose any part."""

    code = "HOLDS_STATE"


def log_app() -> typer.Typer:
    app = command_group("Files of a log: verify, print, repair.")

    @app.command("verify")
    def verify_files(
        data: DataArgument, topic: Annotated[str | None, typer.Option(help="Only this topic's files.")] = None
    ) -> None:
        """Read all files of a data folder and print their problems. Exit code 1 if there are any.

        Checks record batches and their checksums, the sequence of offsets, epochs, indexes and checkpoints. It changes
        nothing. Stop the server first, or the newest records may be reported as missing.
        """
        with one_sentence_errors():
            from millstream.logcore.cluster.node_folder import verify_node

            try:
                verified, findings = verify_node(_log_folder(data), topic)
            except OSError as error:
                raise NoSuchFiles(f"{data} cannot be read: {error.strerror or error}") from error
        for finding in findings:
            typer.echo(str(finding))
        typer.echo(
            f"{verified.partitions} partitions, {verified.segments} segments, {verified.batches} record batches,"
            f" {verified.bytes} bytes: {f'{len(findings)} problems' if findings else 'no problems'}"
        )
        raise typer.Exit(1 if findings else 0)

    @app.command("dump")
    def dump_files(
        file: Annotated[Path, typer.Argument(help="A segment file (….log), or the folder of a partition.")],
        records: Annotated[bool, typer.Option("--records", help="Also print the records of each batch.")] = False,
    ) -> None:
        """Print the record batches of a segment file, a line each."""
        with one_sentence_errors():
            try:
                problems = [problem for path in _segment_files(file) if (problem := _dump(path, records)) is not None]
            except (OSError, ValueError) as error:
                raise NoSuchFiles(f"{file} cannot be read: {error}") from error
            if problems:
                raise problems[0]

    @app.command("accept-loss")
    def accept_loss_of(
        data: DataArgument, topic: Annotated[str, typer.Argument(help="The topic with lost records.")]
    ) -> None:
        """Accept that records of a topic are lost, so that its other records can be read again.

        Stop the server first. If you have a backup, restore it instead. The damaged files are kept next to the new
        ones, with names that end in `.damaged-at-OFFSET`.
        """
        with one_sentence_errors():
            from millstream.logcore.cluster.node_folder import accept_loss_of_node

            if topic.startswith("_millstream-") and topic.endswith(_STATE):
                raise HoldsState(
                    f'topic "{topic}" has the state of a query, which cannot continue without a part of it',
                    hint="Start the server and rebuild the query: RESET QUERY_ID;",
                )
            try:
                given_up = accept_loss_of_node(_log_folder(data), topic)
            except OSError as error:
                raise NoSuchFiles(f"{data} cannot be written: {error.strerror or error}") from error
        for line in given_up:
            typer.echo(f"given up: {line}")
        typer.echo(f'topic "{topic}" is complete' if not given_up else f'topic "{topic}" is readable without them')

    return app


def _log_folder(data: Path) -> Path:
    """The folder of the log: `data` itself, or the folder `log` in it."""
    from millstream.logcore.cluster.node_folder import is_node_folder

    for folder in (data, data / "log"):
        if is_node_folder(folder):
            return folder
        if (folder / "topics.json").exists():
            raise NoSuchFiles(
                f"{folder} holds a log of version 0.1, which this version has not upgraded yet",
                hint="Start the server once: it upgrades the directory in place. Or use the commands of version 0.1.",
            )
    raise NoSuchFiles(f"{data} is not the data folder of a log", hint="Name the folder that has node.json in it.")


def _dump(path: Path, records: bool) -> NotRecordBatches | None:
    """Prints the batches of a file. Returns the error if there is something else behind them, or nothing but that."""
    from millstream.logcore.storage.verification import damaged_bytes, dump, records_of

    end = 0
    for batch in dump(path):
        if end == 0:
            typer.echo(str(path))
        typer.echo(f"  {batch}")
        for record in records_of(batch) if records and batch.whole else ():
            typer.echo(f"    {record}")
        end = batch.position + batch.header.size
    damaged = damaged_bytes(path, end)
    if end == 0 and damaged:
        return NotRecordBatches(f"{path} is not a segment file: it does not begin with a record batch", hint=_NAMES)
    if end == 0:
        typer.echo(str(path))
    return None if not damaged else NotRecordBatches(
        f"{path} has {damaged} bytes from position {end} on that are not a record batch",
        hint="`millstream log verify` finds what is wrong in a data folder.",
    )  # fmt: skip


def _segment_files(path: Path) -> list[Path]:
    files = sorted(path.glob("*.log")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise NoSuchFiles(f"{path} has no segment files", hint=_NAMES)
    return files
