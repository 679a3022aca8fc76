"""A table that was read again: keys that did not come again are deleted, once, whenever the task dies."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from millstream.executor.connect.connector import Chunk, ConnectRecord, Position, SourceConnector, Sweep, TaskInfo
from millstream.executor.connect.connector_sandbox import SOURCE_KILL_POINTS
from millstream.executor.connect.connector_settings import setting
from millstream.testing import ConnectorSandbox


@dataclass(frozen=True)
class TwiceSettings:
    parts: bool = setting("Whether the second reading is in two chunks of one transaction.", default=False)


class Twice(SourceConnector):
    """Keys 1 to 4, then a change of 4, then 2 and 3 again, 5, and the sweep."""

    settings = TwiceSettings
    may_empty = True

    def __init__(self, settings: TwiceSettings, task: TaskInfo) -> None:
        self._parts = settings.parts

    def read(self, position: Position | None, timeout_s: float) -> Chunk | None:
        def records(*keys: int) -> list[ConnectRecord]:
            return [ConnectRecord("t", key, {"n": key}) for key in keys]

        match 0 if position is None else position["step"]:
            case 0:
                return Chunk(records(1, 2, 3, 4), {"step": 1})
            case 1:
                return Chunk(records(4), {"step": 2})
            case 2:
                return Chunk(records(2), {"step": 3}, complete=not self._parts)
            case 3:
                return Chunk(records(3, 5), {"step": 4}, sweeps=[Sweep("t", {"0": 4})])
            case _:
                return None


@pytest.mark.parametrize("parts", ["false", "true"])
@pytest.mark.parametrize("point", SOURCE_KILL_POINTS)
def test_a_key_that_does_not_come_again_is_deleted_once(point: str, parts: str) -> None:
    routed = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "t",
              "transforms.r.replacement": "other", "key.converter": "integer", "parts": parts}  # fmt: skip
    with ConnectorSandbox(Twice, routed) as box:
        for nth in (2, 1):
            box.kill_at(point, nth)
            box.run()
        assert box.deaths >= 1
        last = {record.key: record.value for record in box.records("other")}
        assert {key for key, value in last.items() if value is not None} == {2, 3, 4, 5}
        assert [record.key for record in box.records("other") if record.value is None] == [1]
