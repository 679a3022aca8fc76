"""The commands `millstream group`: the consumer groups of a server's log."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from .command_line import command_group

if TYPE_CHECKING:
    from millstream.logcore.remote import RemoteLog

KafkaOption = Annotated[
    str, typer.Option("--kafka", envvar="MILLSTREAM_KAFKA", metavar="HOST:PORT", help="Kafka listener of a server.")
]
DEFAULT_KAFKA = "127.0.0.1:9092"


def group_app(remote_log: Callable[[str], AbstractContextManager[RemoteLog]]) -> typer.Typer:
    """In: `remote_log`: opens the log at an address, and prints its errors on one line."""
    app = command_group("Consumer groups of a server: state, lag, offsets.")

    @app.command("list")
    def list_groups(kafka: KafkaOption = DEFAULT_KAFKA) -> None:
        """Print the groups and their numbers of members."""
        with remote_log(kafka) as log:
            from millstream.logcore.client import Admin
            from millstream.repl.groups import group_table

            typer.echo("\n".join(group_table(Admin(log))))

    @app.command("describe")
    def describe_group(group: str, kafka: KafkaOption = DEFAULT_KAFKA) -> None:
        """Print a group's committed offset, lag and member for each partition."""
        with remote_log(kafka) as log:
            from millstream.logcore.client import Admin
            from millstream.repl.groups import group_description

            typer.echo("\n".join(group_description(Admin(log), group)))

    @app.command("reset-offsets")
    def reset_group_offsets(
        group: str,
        topic: Annotated[str, typer.Option(help="The topic.")],
        to: Annotated[str, typer.Option(help="earliest, latest, an offset, or a time as 2026-01-31T12:00:00Z.")],
        kafka: KafkaOption = DEFAULT_KAFKA,
    ) -> None:
        """Set the offsets of a group without members."""
        with remote_log(kafka) as log:
            from millstream.logcore.client import Admin
            from millstream.repl.groups import reset_offsets

            typer.echo("\n".join(reset_offsets(Admin(log), group, topic, to)))

    @app.command("delete")
    def delete_group(group: str, kafka: KafkaOption = DEFAULT_KAFKA) -> None:
        """Delete a group without members, with its offsets."""
        with remote_log(kafka) as log:
            from millstream.logcore.client import Admin

            Admin(log).delete_group(group)

    return app
