"""A topic that was deleted and created again is not taken for the one before."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.executor.errors import PositionLost
from millstream.executor.sources.same_topic import SameTopic
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.logcore.log import open_log
from millstream.logcore.server import LogServer


def test_a_topic_of_the_same_name_is_another_topic(tmp_path: Path) -> None:
    with open_log(tmp_path / "log", sync="never") as own, LogServer(own, port=0) as running:
        own.create_topic("t", 1)
        with ExternalLog(ExternalLogSettings.of({"bootstrap.servers": running.address}, "x")) as shared:
            looks = [SameTopic(log, "t") for log in (shared, own)]
            for same in looks:
                same.check()
            own.delete_topic("t")
            for same in looks:
                with pytest.raises(PositionLost, match="deleted"):
                    same.check()
            own.create_topic("t", 1)
            for same in looks:
                with pytest.raises(PositionLost, match="created again"):
                    same.check()
