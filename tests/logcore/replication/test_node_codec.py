"""Frames between nodes: what goes in comes out, and no bytes do any harm."""

from __future__ import annotations

import random
from typing import Any

import pytest

from millstream.logcore.replication.controller.controller_messages import CreateTopic, Refused, Trouble
from millstream.logcore.replication.controller.metadata_image import MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import (
    BrokerRegistered,
    PartitionState,
    Together,
    TopicCreated,
)
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.machine_messages import Message
from millstream.logcore.replication.node.node_codec import Frame, InvalidFrame, decode_frame, encode_frame
from millstream.logcore.replication.node.node_messages import AskMachine, MachineAnswered, NodeMessage
from millstream.logcore.replication.raft.quorum_messages import Append, Entry, InstallSnapshot, Snapshot, VotersChanged
from millstream.logcore.replication.replica.replica_messages import (
    FetchedBatches,
    FetchRefused,
    FetchRequest,
    Problem,
)
from millstream.logcore.replication.replica.replica_messages import Refused as ReplicaRefused
from millstream.logcore.replication.shards.coordination_messages import ForTransaction
from millstream.logcore.replication.shards.transaction_messages import OffsetRow, SendOffsets
from tests.logcore.replication.trio import PARTITION, batch

STATE = PartitionState("topic", 0, NodeId(1), 3, 4, (NodeId(1), NodeId(2)), (NodeId(1),), (), 1)


def image() -> MetadataImage:
    made = MetadataImage()
    registered = BrokerRegistered(NodeId(1), 1, True, (("kafka", "a:1"),), None)
    for index, record in enumerate([registered, Together((TopicCreated("topic", "t"), STATE))], 1):
        made = fold(made, index, record)
    return made


MESSAGES: list[Message | NodeMessage] = [
    FetchRequest(PARTITION, 3, 7, 1, 10, -1, 1000),
    FetchRefused(PARTITION, 3, 1, Problem.NOT_LEADER, 0),
    MachineAnswered(7, 1, Refused(Trouble.TOPIC_EXISTS, 'topic "ä" exists')),
    AskMachine(7, 1, "controller", CreateTopic("t", 1, 3, ((NodeId(1), NodeId(2)),), (("min.insync.replicas", "2"),))),
    Append("c", 1, 0, 0, (Entry(1, STATE), Entry(1, Together((STATE,)))), 0),
    AskMachine(7, 1, "broker", ForTransaction("t", SendOffsets(1, 0, "g", (OffsetRow("t", 0, 5),)))),
    MachineAnswered(7, 1, ReplicaRefused(Problem.NOT_LEADER, "elsewhere")),
    InstallSnapshot("c", 1, Snapshot(2, 1, VotersChanged((NodeId(1),)), image())),
]


def frame_bytes(frame: Frame) -> bytes:
    return b"".join(encode_frame(frame))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_comes_out_as_it_went_in(message: Message | NodeMessage) -> None:
    content = frame_bytes(Frame("broker", message))
    assert int.from_bytes(content[:4], "big") == len(content) - 4
    assert decode_frame(memoryview(content)[4:]) == Frame("broker", message)


def test_batches_travel_as_they_are() -> None:
    sent = FetchedBatches(PARTITION, 3, 1, 10, (batch(b"one"), batch(b"two", rows=2)), 12, 0)
    arrived = decode_frame(memoryview(frame_bytes(Frame("broker", sent)))[4:]).message
    assert isinstance(arrived, FetchedBatches)
    assert [b"".join(each.buffers) for each in arrived.batches] == [b"".join(each.buffers) for each in sent.batches]
    assert [each.header for each in arrived.batches] == [each.header for each in sent.batches]
    assert arrived[:4] == sent[:4]


def test_a_damaged_batch_is_not_taken() -> None:
    content = bytearray(frame_bytes(Frame("broker", FetchedBatches(PARTITION, 3, 1, 10, (batch(b"one"),), 12, 0))))
    content[-1] ^= 1
    with pytest.raises(InvalidFrame, match="not what was sent"):
        decode_frame(memoryview(content)[4:])


def test_no_bytes_do_any_harm() -> None:
    chance = random.Random(20261120)
    good = [frame_bytes(Frame("broker", message))[4:] for message in MESSAGES]
    for _ in range(3_000):
        content = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        del content[chance.randint(0, len(content)) :]
        try:
            decode_frame(memoryview(content))
        except InvalidFrame:
            pass


def test_what_is_no_message_is_not_sent() -> None:
    nothing: Any = object()
    with pytest.raises(TypeError, match="not part of a message"):
        encode_frame(Frame("broker", nothing))


@pytest.mark.parametrize("part", [None, 7, (1, 2), PARTITION, ReplicaRefused(Problem.STORAGE_ERROR, "no room")])
def test_a_part_of_a_message_is_no_message(part: Any) -> None:
    with pytest.raises(InvalidFrame, match="is no message"):
        decode_frame(memoryview(frame_bytes(Frame("broker", part)))[4:])
