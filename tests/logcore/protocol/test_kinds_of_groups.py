"""Members that a group of another kind does not take are told why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.log import Log
from millstream.logcore.protocol.channel import Address, Channels
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.server import LogServer

MINUTE = timedelta(minutes=1)
END_THEM = "It changes its kind only without members: end them all, then start the others."


@pytest.fixture
def channels(log: Log) -> Iterator[Channels]:
    with LogServer(log, port=0) as running:
        opened = Channels(Address("127.0.0.1", running.port))
        opened.ask(Api.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]})
        yield opened
        opened.close()


def join(channels: Channels, member: str = "") -> Any:
    asked = {"group_id": "g", "session_timeout": MINUTE, "rebalance_timeout": MINUTE, "member_id": member}
    offered = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    return channels.ask(Api.JOIN_GROUP, {**asked, **offered})


def beat(channels: Channels, api: Api, epoch: int = 0) -> Any:
    about = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "subscribed_topic_names": ["t"]}
    more = {"rebalance_timeout": MINUTE, "topic_partitions": []} if api is Api.CONSUMER_GROUP_HEARTBEAT else {}
    return channels.ask(api, {**about, **more})


def test_a_group_with_members_of_the_other_protocol_says_what_to_do(channels: Channels) -> None:
    joined = join(channels, join(channels).member_id)
    assert joined.error_code is ErrorCode.none
    refused = beat(channels, Api.CONSUMER_GROUP_HEARTBEAT)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.group_id_not_found,
        f"Group g is not a consumer group. {END_THEM}",
    )
    channels.ask(Api.LEAVE_GROUP, {"group_id": "g", "members": [{"member_id": joined.member_id}]})
    taken = beat(channels, Api.CONSUMER_GROUP_HEARTBEAT)
    assert (taken.error_code, taken.error_message) == (ErrorCode.none, None)
    assert join(channels).error_code is ErrorCode.inconsistent_group_protocol
    assert beat(channels, Api.CONSUMER_GROUP_HEARTBEAT, -1).error_code is ErrorCode.none
    assert join(channels, join(channels).member_id).error_code is ErrorCode.none


def test_a_share_group_stays_one(channels: Channels) -> None:
    assert beat(channels, Api.SHARE_GROUP_HEARTBEAT).error_code is ErrorCode.none
    for _ in range(2):  # with its member, and when it has left
        refused = beat(channels, Api.CONSUMER_GROUP_HEARTBEAT)
        assert refused.error_code is ErrorCode.group_id_not_found
        assert refused.error_message == "Group g is not a consumer group."
        beat(channels, Api.SHARE_GROUP_HEARTBEAT, -1)


def test_a_consumer_group_is_no_share_group(channels: Channels) -> None:
    assert beat(channels, Api.CONSUMER_GROUP_HEARTBEAT).error_code is ErrorCode.none
    refused = beat(channels, Api.SHARE_GROUP_HEARTBEAT)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.group_id_not_found,
        "Group g is not a share group.",
    )
