"""What newcomers get wrong, coming from Postgres, MySQL, Flink or Kafka, and what they read then.

`golden/newcomers.sql` has one statement per paragraph, `golden/newcomers.txt` the answers; `MILLSTREAM_ACCEPT=1` writes
the latter anew. Each answer shows the place, and all but those that need no more have a hint.
"""

from __future__ import annotations

import os
from pathlib import Path

from millstream.errors import MillstreamError
from millstream.sql.ast import PrintTopic
from millstream.testing import Sandbox

GOLDEN = Path(__file__).parent / "golden"
SOURCES = """
CREATE STREAM clicks (user_id STRING KEY, url STRING, amount INT, ts BIGINT)
  WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
CREATE STREAM orders (user_id STRING KEY, amount INT) WITH (kafka_topic='orders', value_format='JSON', partitions=1);
CREATE TABLE users (id STRING PRIMARY KEY, name STRING) WITH (kafka_topic='users', value_format='JSON', partitions=1);
CREATE STREAM big AS SELECT * FROM clicks WHERE amount > 10;
CREATE TABLE counts AS SELECT url, COUNT(*) AS n FROM clicks GROUP BY url;
"""


def test_newcomers_read_what_to_do_about_their_mistakes() -> None:
    statements = GOLDEN.joinpath("newcomers.sql").read_text(encoding="utf-8").strip().split("\n\n")
    with Sandbox() as sandbox:
        sandbox.execute(SOURCES)
        blocks = [answer(sandbox, statement.strip()) for statement in statements]
    printed = "\n\n".join(blocks) + "\n"
    expected = GOLDEN / "newcomers.txt"
    if os.environ.get("MILLSTREAM_ACCEPT"):
        expected.write_text(printed, encoding="utf-8")
    assert printed == expected.read_text(encoding="utf-8")
    for statement, block in zip(statements, blocks, strict=True):
        assert "^" in block, f"no place: {statement}"
        helps = "hint: " in block or any(
            word in block for word in ("Use ", "use ", "Please ", "You need to ", "it takes ")
        )
        assert helps, f"no hint: {statement}"


def answer(sandbox: Sandbox, statement: str) -> str:
    try:
        if statement.startswith("PRINT"):
            (parsed,) = sandbox.engine.parse(statement, sandbox.session)
            assert isinstance(parsed, PrintTopic)
            sandbox.engine.print_topic(parsed)
        elif statement.startswith("SELECT"):
            next(iter(sandbox.query(statement)), None)
        else:
            sandbox.execute(statement)
    except MillstreamError as error:
        error.text = error.text or statement
        return error.render()
    return f"{statement}\nworks"
