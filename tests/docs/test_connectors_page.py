"""docs/connectors.md is true: its statements run as they stand there, against a real PostgreSQL, and give its rows."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections.abc import Generator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import deltalake.exceptions
import duckdb
import pytest
from postgres_server import PostgresServer, postgres_server
from repository import REPOSITORY
from waiting import eventually

from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.sql.ast import CreateSource, Query
from millstream.sql.parser import parse
from millstream.sql.splitting import split_statements

PAGE = (REPOSITORY / "docs" / "connectors.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(sql|pgsql|psql|delta|duckdb|python|toml|rows)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_examples_give_the_rows_that_stand_under_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.ndjson").write_text('{"user": "ada", "page": "/"}\n{"user": "bob", "page": "/cart"}\n')
    (logs / "history").mkdir()
    (logs / "history" / "2025.csv").write_text("user,page\neve,/about\n")
    (tmp_path / "pg.properties").write_text("password=not asked for\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with postgres_server() as server, _prices() as prices_port, _engine(tmp_path) as engine:
        page = PAGE.replace("8099", str(prices_port))
        page = page.replace("/var/lake", str(tmp_path / "lake"))
        page = page.replace("5432", str(server.port)).replace("/var/log/shop", str(logs))
        page = page.replace("/etc/millstream", str(tmp_path))
        _follow(FENCE.findall(page), engine, server, tmp_path)


@contextlib.contextmanager
def _prices() -> Generator[int]:
    """A web server with the prices of the page, two at a time."""
    items = [{"item": "bolt", "price": 0.25}, {"item": "nut", "price": 0.5}, {"item": "screw", "price": 0.125}]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            first = int(parse_qs(urlsplit(self.path).query)["offset"][0])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"data": items[first : first + 2]}).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield site.server_port
        site.shutdown()
        thread.join()


def _engine(folder: Path) -> EmbeddedEngine:
    properties = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}
    return open_engine(folder / "data", properties, sync="never")


def _follow(blocks: list[tuple[str, str]], engine: EmbeddedEngine, server: PostgresServer, folder: Path) -> None:
    asked, seen = ("", ""), 0
    for kind, block in blocks:
        match kind:
            case "rows":
                expected = [json.loads(line) for line in block.splitlines()]
                eventually(lambda: _rows(engine, server, *asked) == expected, 20, otherwise=f"{asked}: {expected}")  # noqa: B023
                seen += 1
            case "pgsql":
                with server.connect() as connection:
                    connection.execute(block)
            case "psql" | "delta" | "duckdb":
                asked = (kind, block)
            case "python":
                (folder / "squares.py").write_text(block)
            case "toml":
                metadata = folder / "squares-1.0.dist-info"
                metadata.mkdir()
                (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: squares\nVersion: 1.0\n")
                (metadata / "entry_points.txt").write_text(
                    block.replace('[project.entry-points."millstream.connectors"]', "[millstream.connectors]").replace(
                        '"', ""
                    )
                )
            case _:
                asked = _run(engine, block) or asked
    assert seen == PAGE.count("```rows")


def _run(engine: EmbeddedEngine, block: str) -> tuple[str, str] | None:
    """The SELECT of the block, which is to be asked."""
    asked = None
    for statement in filter(str.strip, split_statements(block)):
        (parsed,) = parse(f"{statement};")
        if isinstance(parsed, Query):
            asked = ("sql", f"{statement};")
            continue
        if isinstance(parsed, CreateSource) and "PARTITIONS" not in parsed.properties:
            topic = str(parsed.properties["KAFKA_TOPIC"])
            eventually(lambda topic=topic: engine.log.topic(topic) is not None, otherwise=topic)
        engine.execute(f"{statement};", Session())
    return asked


def _rows(engine: EmbeddedEngine, server: PostgresServer, kind: str, text: str) -> list[list[Any]]:
    found: list[list[Any]] = []
    if kind == "psql":
        with server.connect() as connection:
            found = [list(row) for row in connection.execute(text).fetchall()]
    elif kind == "delta":
        with contextlib.suppress(deltalake.exceptions.TableNotFoundError):
            found = [list(row.values()) for row in eval(text, {"DeltaTable": deltalake.DeltaTable})]
    elif kind == "duckdb":
        with contextlib.suppress(duckdb.IOException), duckdb.connect() as connection:
            found = [list(row) for row in connection.execute(text).fetchall()]
    else:
        found = [list(row.values) for row in engine.query(text, Session())]
    return sorted([str(value) if isinstance(value, Decimal) else value for value in row] for row in found)
