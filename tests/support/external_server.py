"""`millstream server` whose log is brokers elsewhere, in a process that can be killed and started again."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from running_server import ENVIRONMENT
from warm_command import WarmPopen

from millstream.server.client import connect


class ExternalServer:
    """State: the process. In: `external`: further settings of the brokers."""

    def __init__(
        self, folder: Path, brokers: str, service_id: str, external: Mapping[str, str | int] | None = None
    ) -> None:
        folder.mkdir()
        self._file = folder / "millstream.toml"
        settings = {"bootstrap.servers": brokers, **(external or {})}
        lines = [f"{name} = {value if isinstance(value, int) else repr(value)}" for name, value in settings.items()]
        self._file.write_text(
            f'data = "{folder / "data"}"\nhttp = "127.0.0.1:0"\nkafka = "external"\nexecutor = "duckdb"\n'
            "[external]\n" + "\n".join(lines) + f'\n[properties]\nksql.service.id = "{service_id}"\n'
            'auto.offset.reset = "earliest"\nksql.streams.cache.max.bytes.buffering = "0"\n'
        )
        self.output = folder / "output.txt"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "millstream", "server", "--config", str(self._file)]
        with self.output.open("a") as output:
            self.process = WarmPopen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=output, text=True)
        assert self.process.stdout is not None
        said = [self.process.stdout.readline() for _ in range(3)]
        found = re.search(r"http://[0-9.:]+", said[0])
        assert found, self.output.read_text()
        self.url = found[0]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def execute(self, statements: str) -> None:
        client = connect(self.url)
        try:
            client.execute(statements)
        finally:
            client.close()


@contextmanager
def external_server(
    folder: Path, brokers: str, service_id: str, external: Mapping[str, str | int] | None = None
) -> Generator[ExternalServer]:
    server = ExternalServer(folder, brokers, service_id, external)
    try:
        yield server
    finally:
        server.kill()


def copy_and_count(server: ExternalServer, service_id: str) -> None:
    """Two queries over the topic `events-<service id>`, whose topics have such names, too."""
    server.execute(
        f"CREATE STREAM events (u STRING KEY, n INT) WITH (kafka_topic='events-{service_id}', value_format='JSON');"
        f"CREATE STREAM copied WITH (kafka_topic='copied-{service_id}') AS SELECT u, n + 1 AS n FROM events;"
        f"CREATE TABLE counted WITH (kafka_topic='counted-{service_id}', cleanup_policy='delete') AS"
        " SELECT u, COUNT(*) AS n, SUM(n) AS total FROM events GROUP BY u;"
    )
