"""The commands `millstream backup`: consistent copies of a running server's log, and their restore."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from .addresses import DEFAULT_SERVER, ServerOption
from .command_line import command_group, one_sentence_errors, path_of

if TYPE_CHECKING:
    from millstream.logcore.backup.backups import Backup, CopyProgress

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_TELL_S: Final = 0.2

PlaceArgument = Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or a URL such as s3://bucket/prefix.")]
IdOption = Annotated[str | None, typer.Option("--backup", metavar="ID", help="Default: the newest backup.")]


def backup_app() -> typer.Typer:
    return command_group(
        "Backups of a running server: create, list, verify, prune, restore.",
        {"create": create, "list": list_backups, "verify": verify, "prune": prune, "restore": restore},
    )


def create(place: PlaceArgument, server: ServerOption = DEFAULT_SERVER) -> None:
    """Back up all nodes of a running server, as of one moment.

    Only what was written since the last backup in the same place is copied. The place has all records of all topics.
    """
    with one_sentence_errors():
        from millstream.logcore.backup.backups import write_backup
        from millstream.logcore.backup.store import BackupStore, place_at

        from .remote_snapshots import snapshots_of

        store = BackupStore(place_at(place))
        told = _Told("backing up")
        with snapshots_of(server) as snapshots:
            held_ms = max(snapshot.held_ms for snapshot in snapshots.values())
            made = write_backup(store, snapshots, int(time.time() * 1000), told.tell)
        told.end()
        typer.echo(
            f"{made.id}: {_bytes(made.size)} of {_nodes(made)}, {_bytes(told.sent)} of them new;"
            f" writers waited for {held_ms} ms"
        )


def list_backups(place: PlaceArgument) -> None:
    """Print the backups, the oldest first. Exits with code 1 if one cannot be read."""
    with one_sentence_errors():
        from millstream.logcore.backup.backups import list_backups
        from millstream.logcore.backup.store import BackupStore, place_at

        backups, damaged = list_backups(BackupStore(place_at(place)))
        for found in backups:
            typer.echo(f"{found.id}  {_bytes(found.size):>9}  {_nodes(found)}")
        for error in damaged:
            typer.echo(error.message, err=True)
        if damaged:
            raise typer.Exit(1)


def verify(place: PlaceArgument, backup: IdOption = None) -> None:
    """Read a backup as a restore would, and print what is damaged. Exits with code 1 if anything is."""
    with one_sentence_errors():
        from millstream.logcore.backup.backups import read_backup, verify_backup
        from millstream.logcore.backup.store import BackupStore, place_at

        store = BackupStore(place_at(place))
        found = read_backup(store, backup)
        damage = list(verify_backup(store, found))
    for line in damage:
        typer.echo(line)
    if damage:
        raise typer.Exit(1)
    typer.echo(f"{found.id}: {_bytes(found.size)} of {_nodes(found)} can be restored")


def prune(
    place: PlaceArgument, keep: Annotated[int, typer.Option(min=1, metavar="NUMBER", help="How many backups stay.")]
) -> None:
    """Remove all but the newest backups, and the data that only they use. Not while a backup to a bucket runs."""
    with one_sentence_errors():
        from millstream.logcore.backup.backups import prune_backups
        from millstream.logcore.backup.store import BackupStore, place_at

        backups, chunks = prune_backups(BackupStore(place_at(place)), keep)
        typer.echo(f"{backups} backups and {chunks} chunks removed")


def restore(
    place: PlaceArgument,
    data: Annotated[
        Path,
        typer.Option(parser=path_of, metavar="DIR", help="Data folder of the new server; its log must not exist."),
    ],
    backup: IdOption = None,
    node: Annotated[int, typer.Option(min=1, help="Node of a cluster: restore all of them from one backup.")] = 1,
) -> None:
    """Write a backup into a new data folder. Start the server with it as usual."""
    with one_sentence_errors():
        from millstream.logcore.backup.backups import backup_to_restore, restore_backup
        from millstream.logcore.backup.store import BackupStore, place_at

        store = BackupStore(place_at(place))
        found = backup_to_restore(store, backup)
        told = _Told("restoring")
        restore_backup(store, found, node, data / "log", told.tell)
        told.end()
        typer.echo(f"{found.id} restored into {data}: {_how_to_start(data, node, len(found.nodes))}")


def _how_to_start(data: Path, node: int, node_count: int) -> str:
    if node_count == 1:
        return f"start it with `millstream server --data {data}`"
    return f"start it as node {node} of its cluster, with --cluster as before, when all {node_count} nodes are restored"


class _Told:
    """A progress line, if standard error is a terminal. State: when it was last written."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = sys.stderr.isatty()
        self._last_s = 0.0
        self.sent = 0

    def tell(self, progress: CopyProgress) -> None:
        self.sent = progress.sent
        if self._shown and time.monotonic() - self._last_s >= _TELL_S:
            self._last_s = time.monotonic()
            share = progress.done / max(progress.size, 1)
            typer.echo(f"\r{self._what}: {share:4.0%} of {_bytes(progress.size)}", nl=False, err=True)

    def end(self) -> None:
        if self._last_s:
            typer.echo("\r\033[K", nl=False, err=True)


def _nodes(backup: Backup) -> str:
    return f"node {min(backup.nodes)}" if len(backup.nodes) == 1 else f"{len(backup.nodes)} nodes"


def _bytes(count: int) -> str:
    """
    >>> _bytes(999), _bytes(1_500), _bytes(2_000_000_000)
    ('999 B', '1.5 kB', '2.0 GB')
    """
    size, unit = float(count), 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"
