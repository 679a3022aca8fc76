"""What a start does not import: libraries and rooms that few use, which are loaded at their first use."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SERVER: Final = """
import importlib.util
from pathlib import Path
from millstream.server.config.configuration import load_configuration
from millstream.server.service import Service

flags = {"data": Path(sys.argv[1]), "http": "127.0.0.1:0", "kafka": "127.0.0.1:0"}
with Service(load_configuration(None, flags), print) as service:
    print("server:", *sys.modules)
    if importlib.util.find_spec("confluent_kafka") is None:
        sys.exit()
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    brokers = {"bootstrap.servers": f"127.0.0.1:{service.kafka_address.port}"}
    admin = AdminClient(brokers)
    admin.create_topics([NewTopic("records", 1)])["records"].result(20)
    producer = Producer({**brokers, "linger.ms": 100})
    for _ in range(5_000):  # few records take another way
        producer.produce("records", b"{}")
    assert producer.flush(20) == 0
    print("server that takes records:", *sys.modules)
"""
SHELL: Final = """
import millstream
print("import:", *sys.modules)
import millstream.repl.shell
print("shell:", *sys.modules)
"""
STARTS: Final = {"shell": SHELL, "server": SERVER}
"""What one process imports, one step after the other."""
SELDOM: Final = {
    "IPython", "deltalake", "hypothesis", "jsonschema", "kio", "mcp", "paho", "pandas", "polars", "proto_schema_parser",
    "psycopg", "pyiceberg", "pymysql", "pyspark", "requests", "sqlalchemy",
    "millstream.executor.connect.sources", "millstream.executor.connect.sinks", "millstream.executor.spark",
    "millstream.notebook", "millstream.server.pg.pg_connection", "millstream.server.pg.dialect.pg_dialect",
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
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{STARTS[start]}", str(tmp_path)],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    found = re.findall("^([a-z ]+): (.*)", done.stdout, re.MULTILINE)
    steps = {step: set(modules.split()) for step, modules in found if step in WITHOUT}
    assert start in steps
    for step, modules in steps.items():
        assert "millstream" in modules
        assert sorted(WITHOUT[step] & modules) == [], step


def test_each_of_our_rooms_that_is_named_here_exists() -> None:
    ours = {name for names in WITHOUT.values() for name in names if name.startswith("millstream.")}
    assert [name for name in sorted(ours) if importlib.util.find_spec(name) is None] == []
