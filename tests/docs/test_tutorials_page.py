"""docs/tutorials.md is true: its statements run as they stand there, against a real PostgreSQL and a real MariaDB, and
give its rows. The search index is one that takes Elasticsearch's bulk requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from mariadb_server import mariadb_server
from postgres_server import postgres_server
from repository import REPOSITORY
from scripted_worker import Answer, Asked, scripted_worker
from waiting import eventually

from millstream.logcore.errors import UnknownTopic
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.sql.ast import CreateSource, Query
from millstream.sql.parser import parse
from millstream.sql.splitting import split_statements

PAGE = (REPOSITORY / "docs" / "tutorials.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DUCKDB = {"millstream.executor": "duckdb"}
Rows = list[list[Any]]


def test_the_examples_give_the_rows_that_stand_under_them(tmp_path: Path) -> None:
    (tmp_path / "shop.properties").write_text("postgres=not asked for\nmariadb=secret\n")
    (options,) = (block for kind, block in FENCE.findall(PAGE) if kind == "ini")
    given = dict(re.findall(r"^(\w+) = (\w+)$", options, re.MULTILINE))
    index = _Index()
    with (
        postgres_server() as postgres, mariadb_server(**given) as mariadb, scripted_worker(index.answer) as search,
        open_engine(tmp_path / "data", DUCKDB, sync="never") as engine,
        postgres.connect() as pgsql, mariadb.connect() as mysql,
    ):  # fmt: skip
        mysql.run("CREATE USER stream IDENTIFIED BY 'secret'")
        mysql.run("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO stream")
        page = PAGE.replace("/etc/millstream", str(tmp_path)).replace("http://127.0.0.1:9200", search.url)
        page = page.replace("5432", str(postgres.port)).replace("3306", str(mariadb.port))
        asked = _Asked(engine)
        runs: Mapping[str, Callable[[str], object]] = {
            "pgsql": pgsql.execute,
            "mysql": lambda block: mysql.run(*filter(str.strip, block.split(";\n"))),
            "sql": asked.run,
            "documents": lambda path: asked.ask(lambda: index.documents(path.split("/")[-1].strip())),
            "rows": asked.check,
            "ini": lambda options: None,
        }
        for kind, block in FENCE.findall(page):
            runs[kind](block)
        assert asked.seen == PAGE.count("```rows") > 5
        for name in ("customers_reader", "logistics_reader", "calls_reader", "enriched_writer"):
            engine.execute(f"DROP CONNECTOR {name};", Session())


class _Asked:
    """State: the session of the page; what gives the rows that come next on it; how often rows were compared."""

    def __init__(self, engine: EmbeddedEngine) -> None:
        self._engine = engine
        self._session = Session()
        self._rows: Callable[[], Rows] = list
        self.seen = 0

    def run(self, block: str) -> None:
        for statement in filter(str.strip, split_statements(block)):
            (parsed,) = parse(f"{statement};")
            if isinstance(parsed, Query):
                self.ask(lambda statement=statement: self._answer(f"{statement};"))
                continue
            if isinstance(parsed, CreateSource):
                topic = str(parsed.properties.get("KAFKA_TOPIC"))
                eventually(lambda topic=topic: self._engine.log.topic(topic) is not None, otherwise=topic)
            self._engine.execute(f"{statement};", self._session)

    def ask(self, rows: Callable[[], Rows]) -> None:
        self._rows = rows

    def check(self, block: str) -> None:
        expected = [json.loads(line) for line in block.splitlines()]
        with suppress(AssertionError):  # the next line shows what came
            eventually(lambda: self._rows() == expected, 20)
        assert self._rows() == expected
        self.seen += 1

    def _answer(self, query: str) -> Rows:
        found: Rows = []
        with suppress(UnknownTopic):
            found = [list(row.values) for row in self._engine.query(query, self._session)]
        return sorted([str(value) if isinstance(value, Decimal) else value for value in row] for row in found)


class _Index:
    """State: the documents by id, by index."""

    def __init__(self) -> None:
        self._documents: dict[str, dict[str, Any]] = {}

    def answer(self, asked: Asked) -> Answer:
        lines = [json.loads(line) for line in asked.body.splitlines()]
        items: list[dict[str, Any]] = []
        for head, document in zip(lines[::2], lines[1::2], strict=True):
            target = head["index"]
            self._documents.setdefault(target["_index"], {})[target["_id"]] = document
            items.append({"index": {"status": 201}})
        return 200, {"errors": False, "items": items}

    def documents(self, index: str) -> Rows:
        return [[id_, document] for id_, document in sorted(self._documents.get(index, {}).items())]
