"""What a start does not import: libraries and rooms that few use, which are loaded at their first use."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SERVER: Final = """
from pathlib import Path
from millstream.server.config.configuration import load_configuration
from millstream.server.service import Service

flags = {"data": Path(sys.argv[1]), "http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}
with Service(load_configuration(None, flags), print):
    modules = set(sys.modules)
"""
TAKES_RECORDS: Final = """
from pathlib import Path
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from millstream.server.config.configuration import load_configuration
from millstream.server.service import Service

flags = {"data": Path(sys.argv[1]), "http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}
with Service(load_configuration(None, flags), print) as service:
    brokers = {"bootstrap.servers": f"127.0.0.1:{service.kafka_address.port}"}
    admin = AdminClient(brokers)
    admin.create_topics([NewTopic("records", 1)])["records"].result(20)
    producer = Producer({**brokers, "linger.ms": 100})
    for _ in range(5_000):  # few records take another way
        producer.produce("records", b"{}")
    assert producer.flush(20) == 0
    modules = set(sys.modules)
"""
STARTS: Final = {
    "import": "import millstream; modules = set(sys.modules)",
    "shell": "import millstream.repl.shell; modules = set(sys.modules)",
    "server": SERVER,
    "server that takes records": TAKES_RECORDS,
}
SELDOM: Final = {
    "IPython", "deltalake", "hypothesis", "jsonschema", "kio", "mcp", "paho", "pandas", "polars", "proto_schema_parser",
    "psycopg", "pyiceberg", "pymysql", "pyspark", "requests", "sqlalchemy",
    "millstream.executor.connect.sources", "millstream.executor.connect.sinks", "millstream.executor.spark",
    "millstream.notebook", "millstream.server.pg.pg_connection", "millstream.server.pg.pg_dialect",
}  # fmt: skip
WITHOUT: Final = {
    "server": SELDOM | {"millstream.repl", "prompt_toolkit", "typer"},
    "server that takes records": {"millstream.executor.spark", "millstream.repl", "pandas", "pyspark"},
    "shell": SELDOM
    | {"duckdb", "millstream.executor.queries", "millstream.server.engine", "numba", "pyarrow", "pydantic", "rich"},
    "import": SELDOM | {"duckdb", "millstream.sql", "numba", "numpy", "pyarrow", "pydantic", "rich", "sqlglot"},
}


@pytest.mark.parametrize("start", STARTS)
def test_what_few_use_is_not_imported(start: str, tmp_path: Path) -> None:
    if start == "server that takes records":
        pytest.importorskip("confluent_kafka")
    script = f"import sys\n{STARTS[start]}\nprint(*modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    modules = set(done.stdout.split())
    assert "millstream" in modules
    assert sorted(WITHOUT[start] & modules) == []


def test_each_of_our_rooms_that_is_named_here_exists() -> None:
    ours = {name for names in WITHOUT.values() for name in names if name.startswith("millstream.")}
    assert [name for name in sorted(ours) if importlib.util.find_spec(name) is None] == []
