"""docs/mysql.md is true: its statements run as they stand there, against a real MariaDB, and give its rows."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

from mariadb_server import mariadb_server
from repository import REPOSITORY
from waiting import eventually

from millstream.logcore.errors import UnknownTopic
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session
from millstream.sql.ast import Query
from millstream.sql.parser import parse
from millstream.sql.splitting import split_statements

PAGE = (REPOSITORY / "docs" / "mysql.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(sql|mysql|ini|rows)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROPERTIES = {"millstream.executor": "duckdb", "auto.offset.reset": "earliest"}


def test_the_examples_give_the_rows_that_stand_under_them(tmp_path: Path) -> None:
    (tmp_path / "shop.properties").write_text("password=secret\n")
    page = PAGE.replace("/etc/millstream", str(tmp_path))
    (options,) = (block for kind, block in FENCE.findall(page) if kind == "ini")
    given = dict(re.findall(r"^(\w+) = (\w+)$", options, re.MULTILINE))
    assert len(given) == 4
    with mariadb_server(**given) as server, open_engine(tmp_path / "data", PROPERTIES, sync="never") as engine:
        page, question, seen = page.replace("3306", str(server.port)), "", 0
        with server.connect() as sql:
            for kind, block in FENCE.findall(page):
                if kind == "mysql":
                    sql.run(*filter(str.strip, block.split(";\n")))
                elif kind == "sql":
                    question = _run(engine, block) or question
                elif kind == "rows":
                    expected = [json.loads(line) for line in block.splitlines()]
                    eventually(lambda: _rows(engine, question) == expected, 20, otherwise=question)  # noqa: B023
                    seen += 1
        assert seen == 2
        engine.execute("DROP CONNECTOR m;", Session())


def _run(engine: EmbeddedEngine, block: str) -> str:
    """The query among the statements, which is asked later."""
    question = ""
    for statement in filter(str.strip, split_statements(block)):
        (parsed,) = parse(f"{statement};")
        if isinstance(parsed, Query):
            question = f"{statement};"
        else:
            engine.execute(f"{statement};", Session())
    return question


def _rows(engine: EmbeddedEngine, question: str) -> list[list[object]]:
    """None of a topic that the connector has not made yet."""
    found: list[list[object]] = []
    with suppress(UnknownTopic):
        found = [list(row.values) for row in engine.query(question, Session())]
    return sorted([str(value) if isinstance(value, Decimal) else value for value in row] for row in found)
