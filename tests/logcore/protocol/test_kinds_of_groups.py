"""Members that a group of another kind does not take are told why."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from millstream.logcore.cores.subscriptions import Subscription, encode_subscription
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


def join(channels: Channels, member: str = "", kind: str = "connect") -> Any:
    asked = {"group_id": "g", "session_timeout": MINUTE, "rebalance_timeout": MINUTE, "member_id": member}
    metadata = encode_subscription(Subscription(("t",))) if kind == "consumer" else b""
    offered = {"protocol_type": kind, "protocols": [{"name": "range", "metadata": metadata}]}
    return channels.ask(Api.JOIN_GROUP, {**asked, **offered})


def beat(channels: Channels, api: Api, epoch: int = 0) -> Any:
    about = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "subscribed_topic_names": ["t"]}
    more = {"rebalance_timeout": MINUTE, "topic_partitions": []} if api is Api.CONSUMER_GROUP_HEARTBEAT else {}
    return channels.ask(api, {**about, **more})


def test_a_group_with_members_that_are_no_consumers_says_what_to_do(channels: Channels) -> None:
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


def test_consumers_of_both_protocols_are_members_of_one_group_and_are_told_apart(channels: Channels) -> None:
    first = join(channels, join(channels, kind="consumer").member_id, "consumer")
    assert (first.error_code, first.leader) == (ErrorCode.none, first.member_id)
    assert beat(channels, Api.CONSUMER_GROUP_HEARTBEAT).error_code is ErrorCode.none
    again = join(channels, first.member_id, "consumer")
    assert (again.error_code, again.leader, again.members) == (ErrorCode.none, "", ())
    [group] = channels.ask(Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": ["g"]}).groups
    assert {member.member_id: member.member_type for member in group.members} == {first.member_id: 0, "m": 1}


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
