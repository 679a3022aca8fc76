"""The commands `millstream topic`: the topics of a server, and their settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.errors import ServerError

from .command_line import command_group
from .group_commands import DEFAULT_KAFKA, KafkaOption

if TYPE_CHECKING:
    from millstream.logcore.remote import RemoteLog

ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A property, as retention.ms=86400000. Repeatable."),
]


class WrongTopicUsage(ServerError):
    """Flags of a topic command are missing or invalid."""

    code = "WRONG_TOPIC_USAGE"


def topic_app(remote_log: Callable[[str], AbstractContextManager[RemoteLog]]) -> typer.Typer:
    """In: `remote_log`: opens the log at an address, and prints its errors on one line."""
    app = command_group("Topics of a server, and their settings.")

    @app.command("list")
    def list_topics(kafka: KafkaOption = DEFAULT_KAFKA) -> None:
        """Print the topics and how many partitions they have."""
        with remote_log(kafka) as log:
            from millstream.repl.records import topic_table

            typer.echo("\n".join(topic_table(log)))

    @app.command("create")
    def create_topic(
        name: str,
        partitions: Annotated[int, typer.Option(min=1)] = 1,
        config: ConfigOption = None,
        kafka: KafkaOption = DEFAULT_KAFKA,
    ) -> None:
        """Create a topic."""
        with remote_log(kafka) as log:
            log.create_topic(name, partitions, _settings(config))

    @app.command("describe")
    def describe_topic(name: str, kafka: KafkaOption = DEFAULT_KAFKA) -> None:
        """Print a topic's settings that are not the defaults, and where each partition starts and ends."""
        with remote_log(kafka) as log:
            from millstream.repl.topics import topic_description

            typer.echo("\n".join(topic_description(log, name)))

    @app.command("alter")
    def alter_topic(
        name: str,
        config: ConfigOption = None,
        unset: Annotated[
            list[str] | None, typer.Option("--unset", metavar="NAME", help="A property to set back to its default.")
        ] = None,
        partitions: Annotated[int | None, typer.Option(min=1, help="How many there are to be; never fewer.")] = None,
        kafka: KafkaOption = DEFAULT_KAFKA,
    ) -> None:
        """Change a topic's settings, or add partitions."""
        with remote_log(kafka) as log:
            from millstream.repl.records import find_topic

            if not config and not unset and partitions is None:
                hint = "Give --config NAME=VALUE, --unset NAME or --partitions."
                raise WrongTopicUsage("nothing to change", hint=hint)
            topic = find_topic(log, name)
            changed = {**topic.config, **_settings(config)}
            for key in unset or ():
                changed.pop(key, None)
            if changed != dict(topic.config):
                log.alter_topic(name, changed)
            if partitions is not None and partitions != topic.partition_count:
                log.add_partitions(name, partitions)

    @app.command("delete")
    def delete_topic(name: str, kafka: KafkaOption = DEFAULT_KAFKA) -> None:
        """Delete a topic with all its records."""
        with remote_log(kafka) as log:
            log.delete_topic(name)

    return app


def _settings(given: list[str] | None) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise WrongTopicUsage(f'"{text}" is no property', hint="Write --config NAME=VALUE.")
        settings[name.strip()] = value.strip()
    return settings
