"""DROP … CASCADE: what depends on a stream goes before it, and the answer says what went."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.errors import InvalidStatement
from millstream.server.engine.session import Session
from millstream.server.security.access import RoleSettings, User
from millstream.server.security.rights import NotPermitted, Rights
from millstream.testing import Sandbox

SOURCES = """
CREATE STREAM s (id INT KEY, v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);
CREATE STREAM other (id INT KEY, v INT) WITH (kafka_topic='other', value_format='JSON', partitions=1);
CREATE STREAM a AS SELECT * FROM s;
CREATE TABLE b AS SELECT id, COUNT(*) AS n FROM a GROUP BY id;
CREATE STREAM c AS SELECT a.id, a.v, b.n FROM a JOIN b ON a.id = b.id;
INSERT INTO other SELECT * FROM a;
INSERT INTO s SELECT * FROM other;
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute(SOURCES)
        yield opened


def _names(sandbox: Sandbox) -> list[str]:
    return sorted(source["name"] for source in sandbox.sources())


def test_all_that_depends_on_it_goes_first_and_is_told(sandbox: Sandbox) -> None:
    with pytest.raises(InvalidStatement) as refused:
        sandbox.execute("DROP STREAM a;")
    assert refused.value.hint is not None and "DROP STREAM A CASCADE" in refused.value.hint
    (answer,) = sandbox.execute("DROP STREAM s CASCADE;")
    message = answer["commandStatus"]["message"]
    told = [message.index(word) for word in ("query INSERTQUERY_", "stream C (", "table B (", "stream A (")]
    assert told == sorted(told)
    assert message.startswith("Source `S` (topic: s) was dropped.")
    assert _names(sandbox) == ["OTHER"]
    assert sandbox.execute("SHOW QUERIES;")[0]["queries"] == []


def test_only_the_named_topic_is_deleted(sandbox: Sandbox) -> None:
    sandbox.execute("DROP STREAM a CASCADE DELETE TOPIC;")
    assert _names(sandbox) == ["OTHER", "S"]
    topics = set(sandbox.log.topics())
    assert "A" not in topics
    assert topics >= {"s", "other", "B", "C"}
    assert len(sandbox.execute("SHOW QUERIES;")[0]["queries"]) == 1  # from OTHER into S


def test_what_nothing_depends_on_is_dropped_as_without_it(sandbox: Sandbox) -> None:
    (answer,) = sandbox.execute("DROP STREAM c CASCADE;")
    assert answer["commandStatus"]["message"] == "Source `C` (topic: C) was dropped."
    assert _names(sandbox) == ["A", "B", "OTHER", "S"]


def test_a_topic_that_others_use_by_another_name_is_not_deleted_and_nothing_is_dropped(sandbox: Sandbox) -> None:
    sandbox.execute("CREATE STREAM same (id INT KEY, v INT) WITH (kafka_topic='A', value_format='JSON');")
    sandbox.execute("CREATE STREAM reading AS SELECT * FROM same;")
    before = _names(sandbox)
    with pytest.raises(InvalidStatement, match="Cannot delete topic A"):
        sandbox.execute("DROP STREAM a CASCADE DELETE TOPIC;")
    assert _names(sandbox) == before


@pytest.mark.parametrize("missing", ["S", "A", "B", "C", "OTHER"])
def test_a_right_is_needed_on_everything_that_goes(sandbox: Sandbox, missing: str) -> None:
    names = tuple(name for name in ("S", "A", "B", "C", "OTHER") if name != missing)
    rights = Rights(User("ana", (RoleSettings(read=(*names, "s", "other"), ddl=names),)))
    before = _names(sandbox)
    with pytest.raises(NotPermitted) as refused:
        sandbox.engine.execute("DROP STREAM s CASCADE;", Session(rights=rights))
    name = "S" if missing == "S" else "all that depends on S"  # what one may not read, one is not told
    assert str(refused.value) == f'ana has no right "ddl" on {name}'
    assert _names(sandbox) == before
