"""Debezium's connector for PostgreSQL, as it is released, in a worker of Apache Kafka Connect."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Final

from ..apache_kafka import VERSION, free_ports, running_java
from ..maven import jars

DEBEZIUM: Final = "3.4.1.Final"
_LOGGING: Final = "org.slf4j:slf4j-simple:1.7.36"
_WORKER: Final = """
bootstrap.servers = {kafka}
listeners = http://127.0.0.1:{port}
key.converter = org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable = false
value.converter = org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable = false
offset.storage.file.filename = {folder}/offsets
"""


@contextlib.contextmanager
def debezium(kafka: str, database: Mapping[str, str], topics: str, folder: Path) -> Generator[int]:
    """Gives the process. In: `database`: settings that Debezium and our source share; `topics`: their prefix. Raises
    `Unavailable`."""
    names = (f"io.debezium:debezium-connector-postgres:{DEBEZIUM}", f"org.apache.kafka:connect-runtime:{VERSION}")
    classpath = ":".join(map(str, jars(*names, _LOGGING)))
    folder.mkdir()
    worker, connector = folder / "worker.properties", folder / "connector.properties"
    worker.write_text(_WORKER.format(kafka=kafka, port=free_ports(1)[0], folder=folder))
    config = {
        **database, "name": "captured", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput", "publication.autocreate.mode": "filtered", "topic.prefix": topics,
    }  # fmt: skip
    connector.write_text("".join(f"{name} = {value}\n" for name, value in config.items()))
    program = "org.apache.kafka.connect.cli.ConnectStandalone"
    with running_java(classpath, program, [str(worker), str(connector)], folder / "output.txt") as process:
        yield process
