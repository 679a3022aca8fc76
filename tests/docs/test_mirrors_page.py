"""docs/mirrors.md is true: its statements run as they stand there, and its table has the settings that there are."""

from __future__ import annotations

import re
from pathlib import Path

from repository import REPOSITORY
from two_logs import records_of, rows
from waiting import eventually

from millstream.executor.connect.mirror_settings import DOCS
from millstream.logcore.log import open_log
from millstream.logcore.server import LogServer
from millstream.server.engine.embedded import open_engine
from millstream.server.engine.session import Session

PAGE = (REPOSITORY / "docs" / "mirrors.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```sql\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_statements_run_in_their_order(tmp_path: Path) -> None:
    with open_log(tmp_path / "there", sync="never") as there, LogServer(there, port=0) as server:
        for topic in ("orders", "orders_test", "customers", "others"):
            there.create_topic(topic, 1)
            there.append(topic, 0, rows(b"a"))
        page = PAGE.replace("broker1:9092,broker2:9092", server.address)
        with open_engine(tmp_path / "here", sync="never") as engine:
            create, *others = FENCE.findall(page)
            engine.execute(create, Session())
            for topic in ("orders", "customers"):
                eventually(lambda: engine.log.topic(topic) is not None and records_of(engine.log, topic) != [])  # noqa: B023
            for block in others:
                engine.execute(block, Session())
            assert not engine.catalog.mirrors
            assert "orders" in engine.log.topics()
            assert {"orders_test", "others"}.isdisjoint(engine.log.topics())
            engine.log.append("orders", 0, rows(b"mine"))


def test_the_table_of_settings_has_all_of_them() -> None:
    for name, meaning in DOCS.items():
        assert f"| `{name}` | {meaning} |" in PAGE
