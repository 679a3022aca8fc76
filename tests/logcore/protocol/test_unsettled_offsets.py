"""Who asks for offsets that are settled never gets one that a transaction is just replacing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.group_messages import CommittedOffset
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.requests.offset_requests import offset_fetch

T0 = TopicPartition("t", 0)


class Deciding:
    """A log whose one open transaction, which commits offset 9 after 3, is decided right after the first question."""

    def __init__(self) -> None:
        self.groups = self
        self._decided = False

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return {T0: CommittedOffset(9 if self._ask() else 3)}

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]:
        return frozenset() if self._ask() else frozenset({T0})

    def _ask(self) -> bool:
        decided, self._decided = self._decided, True
        return decided


class Undecided:
    """A log whose one open transaction commits the first offset that the group ever has."""

    def __init__(self) -> None:
        self.groups = self

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return {}

    def unsettled_offsets(self, group: str) -> frozenset[TopicPartition]:
        return frozenset({T0})


def test_a_first_offset_that_is_not_decided_is_not_left_out() -> None:
    """Who asks for all would take it for one that was never committed."""
    assert fetched(Undecided())["error_code"] is ErrorCode.unstable_offset_commit


def test_an_offset_that_a_transaction_replaces_meanwhile_is_not_called_settled() -> None:
    answer = fetched(Deciding())
    assert answer["error_code"] is ErrorCode.unstable_offset_commit or answer["committed_offset"] == 9


def fetched(log: Any) -> Any:
    """What is said of the one partition that there is."""
    request: Any = SimpleNamespace(group_id="g", topics=None, require_stable=True)
    broker: Any = SimpleNamespace(log=log)
    peer: Any = SimpleNamespace(may=lambda *_: True)
    [topic] = offset_fetch(broker, request, peer)["topics"]
    [answer] = topic["partitions"]
    return answer
