"""Nodes of two releases in one cluster: what they say to each other, and when what the newer one brings is used."""

from __future__ import annotations

import asyncio
import json
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from structlog.testing import capture_logs

from millstream.logcore.cluster.cluster_node import ClusterNode, WrittenByLaterRelease
from millstream.logcore.cluster.operations import OperationRefused, Operations
from millstream.logcore.cluster.settings import ClusterSettings
from millstream.logcore.protocol.requests.topic_requests import api_versions
from millstream.logcore.protocol.wire.apis import CAME_WITH
from millstream.logcore.replication.cluster_version import VERSIONS, ClusterVersions
from millstream.logcore.replication.controller import controller, metadata_codec
from millstream.logcore.replication.controller.controller_messages import BrokerHeartbeat, RaiseVersion
from millstream.logcore.replication.controller.metadata_codec import LaterRecord, decode_record, encode_record
from millstream.logcore.replication.controller.metadata_image import ImageCodec, MetadataImage, fold
from millstream.logcore.replication.controller.metadata_records import SingleRecord, VersionRaised
from millstream.logcore.replication.machine import NodeId, Send
from millstream.logcore.replication.node import node_codec
from millstream.logcore.replication.node.node_codec import Frame, decode_frame, encode_frame
from millstream.logcore.replication.node.node_links import NodeLinks, PeerAddress, Peers
from millstream.logcore.replication.node.node_messages import AskMachine
from millstream.logcore.replication.node.spoken_versions import FIELDS, KINDS, Unspoken, fields_spoken
from tests.logcore.cluster.hand_cluster import HandCluster
from tests.logcore.replication.test_node_links import MESSAGE, ONE, TWO, addresses, run, until_arrived

GOLDEN: Final = Path(__file__).parent / "golden" / "spoken_version_1.txt"
BEAT: Final = BrokerHeartbeat("c", ONE, 3, 1, 7, leaving=True, newest_version=2)


# What is spoken


@pytest.mark.parametrize(
    ("own", "theirs", "shared"),
    [
        ((1, 2), (1, 2), 2),
        ((1, 2), (1, 1), 1),
        ((1, 1), (1, 2), 1),
        ((2, 2), (1, 1), None),
        ((1, 1), (2, 2), None),
        ((2, 3), (1, 2), 2),
        ((1, 3), (2, 2), 2),
    ],
)
def test_the_newest_version_that_both_know_is_spoken(
    own: tuple[int, int], theirs: tuple[int, int], shared: int | None
) -> None:
    assert ClusterVersions(*own).shared_with(ClusterVersions(*theirs)) == shared


def test_what_the_first_version_says_never_changes() -> None:
    """A node of the first release knows these kinds, fields and values, in this order, and no others. What is new needs
    a version of its own (`spoken_versions.py`)."""
    lines: list[str] = []
    for name, kind in sorted(node_codec._KINDS.items()):
        if KINDS.get(kind, 1) > 1:
            continue
        if issubclass(kind, Enum):
            lines.append(f"{name}: {', '.join(f'{each.name}={each.value}' for each in kind)}")
        else:
            lines.append(f"{name}: {', '.join(f for f in kind._fields if FIELDS.get(kind, {}).get(f, 1) == 1)}")
    assert "\n".join(lines) + "\n" == GOLDEN.read_text(encoding="utf-8")


def test_new_fields_stand_behind_the_old_ones_and_may_be_missing() -> None:
    for kind, fields in FIELDS.items():
        assert tuple(fields) == kind._fields[-len(fields) :], kind
        assert sorted(fields.values()) == list(fields.values()), kind
        assert set(fields) <= set(kind._field_defaults), kind
        assert kind not in get_args(SingleRecord), f"{kind}: all nodes read the metadata log: it needs a new kind"


def test_versions_are_those_of_this_release() -> None:
    said = {*KINDS.values(), *(version for fields in FIELDS.values() for version in fields.values())}
    assert said == set(range(2, VERSIONS.newest + 1)), "each version brings something, and nothing is of a later one"


def test_an_older_node_does_not_hear_of_new_fields() -> None:
    content = b"".join(encode_frame(Frame("controller", BEAT), 1))
    assert b"true,2" not in content
    assert decode_frame(memoryview(content)[4:]).message == BEAT._replace(newest_version=1)
    newer = b"".join(encode_frame(Frame("controller", BEAT), 2))
    assert decode_frame(memoryview(newer)[4:]).message == BEAT


def test_an_older_node_is_not_sent_what_it_does_not_know() -> None:
    asked = AskMachine(1, 1, "controller", RaiseVersion(2))
    with pytest.raises(Unspoken, match="RaiseVersion came with version 2"):
        encode_frame(Frame("node", asked), 1)
    assert decode_frame(memoryview(b"".join(encode_frame(Frame("node", asked), 2)))[4:]).message == asked
    assert fields_spoken(MESSAGE.message, 1) == MESSAGE.message


# Connections


async def _node(
    versions: ClusterVersions | None, node: NodeId, known: dict[NodeId, PeerAddress], arrived: list[Any]
) -> NodeLinks:
    links = NodeLinks(Peers("c", node, b"secret", known), lambda sender, frame: arrived.append((sender, frame)))
    if versions is not None:
        links.versions = versions
    await links.start()
    return links


def test_two_releases_talk_in_the_older_version() -> None:
    async def talk() -> None:
        known, arrived, here = addresses(), list[Any](), list[Any]()
        newer, older = await _node(None, ONE, known, here), await _node(ClusterVersions(1, 1), TWO, known, arrived)
        await until_arrived(arrived, newer, TWO)
        newer.send(TWO, Frame("node", AskMachine(1, 1, "controller", RaiseVersion(2))))
        newer.send(TWO, Frame("controller", BEAT))
        older.send(ONE, MESSAGE)
        while arrived[-1] == (ONE, MESSAGE) or not here:
            await asyncio.sleep(0.02)
        assert [frame.message for _, frame in arrived if frame != MESSAGE] == [BEAT._replace(newest_version=1)]
        assert here[0] == (TWO, MESSAGE)
        await newer.stop()
        await older.stop()

    run(talk())


@pytest.mark.parametrize("says", [ClusterVersions(1, 1), None], ids=["says so", "says nothing"])
def test_who_speaks_no_version_of_the_cluster_is_refused(
    says: ClusterVersions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        known, arrived = addresses(), list[Any]()
        newer = await _node(ClusterVersions(2, 2), ONE, known, arrived)
        reader, writer = await asyncio.open_connection(*known[ONE])
        hello = {"cluster": "c", "from": TWO, "to": ONE, "challenge": "00"}
        writer.write(json.dumps({**hello, **({} if says is None else {"versions": says})}).encode() + b"\n")
        welcome = json.loads(await reader.readline())
        assert welcome["versions"] == [2, 2]
        meeting = node_links_meeting(welcome["challenge"])
        writer.write(json.dumps({"proof": meeting}).encode() + b"\n")
        assert await reader.read() == b"", "it goes on with a node that it does not understand"
        writer.close()
        await newer.stop()

    with capture_logs() as said:
        run(refuse())
    reasons = [str(entry.get("reason")) for entry in said if entry["log_level"] == "warning"]
    assert any("node 2 runs a release that is too old for this cluster" in reason for reason in reasons), said


def node_links_meeting(challenge: str) -> str:
    from millstream.logcore.replication.node.node_links import _Meeting

    return _Meeting("c", TWO, ONE, "00", challenge).proof(b"secret", "connects")


def test_a_node_that_is_too_old_says_so_of_itself() -> None:
    async def refuse() -> None:
        known, arrived = addresses(), list[Any]()
        newer, older = await _node(ClusterVersions(3, 4), ONE, known, arrived), await _node(None, TWO, known, arrived)
        while not any(reason.startswith("this node runs a release that is too old") for reason in reasons()):
            older.send(ONE, MESSAGE)
            newer.send(TWO, MESSAGE)
            await asyncio.sleep(0.02)
        assert arrived == []
        await newer.stop()
        await older.stop()

    def reasons() -> set[str]:
        return {str(entry["reason"]) for entry in said if entry["log_level"] == "warning"}

    with capture_logs() as said:
        run(refuse())


@pytest.mark.parametrize("versions", ["2", [2], [1, 2, 3], ["1", "2"], {"oldest": 1}, 7])
def test_versions_that_are_none_end_the_connection(versions: Any) -> None:
    links = NodeLinks(Peers("c", ONE, b"secret", {}), lambda sender, frame: None)
    with pytest.raises(node_codec.InvalidFrame, match="node 2 says that it speaks the versions"):
        links._spoken_with(TWO, {"versions": versions})


# The cluster


@pytest.fixture
def begun_earlier(monkeypatch: pytest.MonkeyPatch) -> HandCluster:
    """Three nodes of this release on the data of an earlier one, whose cluster uses version 1."""
    with monkeypatch.context() as earlier:
        earlier.setattr(controller, "VERSIONS", ClusterVersions(1, 1))
        cluster = HandCluster()
    assert cluster.image.version == 1
    return cluster


def test_a_cluster_that_begins_uses_the_newest_version() -> None:
    cluster = HandCluster()
    assert cluster.image.version == VERSIONS.newest
    assert {node.watch.image.version for node in cluster.nodes.values()} == {VERSIONS.newest}


def test_a_node_that_is_alone_uses_the_newest_version_from_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(controller, "VERSIONS", ClusterVersions(1, 1))
        cluster = HandCluster(1)
        cluster.create_topic("t", replicas=1)
        cluster.stop(1)
    cluster.start(1)
    cluster.until(lambda: cluster.image.version == VERSIONS.newest)
    assert "t" in cluster.image.topic_ids


def test_an_operator_raises_the_version_once_all_nodes_speak_it(begun_earlier: HandCluster) -> None:
    cluster = begun_earlier
    cluster.pass_time(5_000)
    assert cluster.image.version == 1, "nobody has asked for it"
    operations = Operations(cluster.port(2), "test")
    assert {node.newest_version for node in operations.status().nodes} == {2}
    assert operations.status().version == 1
    assert operations.raise_version() == VERSIONS.newest
    cluster.until(lambda: all(node.watch.image.version == 2 for node in cluster.nodes.values()))
    assert operations.status().version == 2
    records = cluster.image.index
    assert operations.raise_version() == VERSIONS.newest
    assert cluster.image.index == records, "what is so already is not written once more"


def test_a_node_of_an_earlier_release_keeps_the_version_down(begun_earlier: HandCluster) -> None:
    """Its heartbeats have no word of versions; those of a node that says nothing at all neither."""
    cluster = begun_earlier
    cluster.stop(3)
    cluster.pass_time(2_000)  # a process that sent a heartbeat lately is not replaced
    cluster.start(3)
    third = NodeId(3)

    def is_of_an_older_node(sender: NodeId, send: Send) -> bool:
        return isinstance(send.message, BrokerHeartbeat) and send.message.broker == third and sender == third

    cluster.held = is_of_an_older_node
    cluster.pass_time(1_000)
    with pytest.raises(OperationRefused, match="node 3 does not say to speak version 2: start"):
        Operations(cluster.port(), "test").raise_version()
    assert cluster.image.version == 1
    cluster.held = lambda sender, send: False
    cluster.until(lambda: cluster.image.is_live(third))
    assert Operations(cluster.port(), "test").raise_version() == 2


def test_nodes_that_are_down_keep_the_version_down(begun_earlier: HandCluster) -> None:
    """The next controller has not heard of them: who was new before may be started with the earlier release."""
    cluster = begun_earlier
    leader = cluster.active.controller.quorum.id
    cluster.stop(leader)
    other = next(iter(cluster.nodes))
    cluster.until(lambda: any(node.controller.active for node in cluster.nodes.values()))
    cluster.pass_time(5_000)
    with pytest.raises(OperationRefused, match=f"node {leader} does not say"):
        Operations(cluster.port(other), "test").raise_version()


def test_a_version_of_a_later_release_is_refused(begun_earlier: HandCluster) -> None:
    answer = begun_earlier.port().ask_controller(RaiseVersion(VERSIONS.newest + 1), 10)
    assert "version 3 is of a later release: this one knows versions 1 to 2" in answer.message
    assert begun_earlier.port().ask_controller(RaiseVersion(1), 10).index > 0, "it is so"


# On disk


def test_images_say_which_version_is_used() -> None:
    codec = ImageCodec()
    image = fold(MetadataImage(), 1, VersionRaised(2))
    assert codec.decode(codec.encode(image)) == image
    of_an_earlier_release = json.loads(codec.encode(MetadataImage()))
    del of_an_earlier_release["version"]
    assert codec.decode(json.dumps(of_an_earlier_release).encode()).version == 1
    assert fold(image, 2, VersionRaised(1)).version == 2, "it is never lowered"


@pytest.mark.parametrize("content", [b'["VersionRaised",3]', b'["NeverHeardOf",1]', b'["TopicCreated","a","b","c"]'])
def test_records_of_a_later_release_are_known_as_such(content: bytes) -> None:
    with pytest.raises(LaterRecord):
        decode_record(content)


def test_records_of_this_release_are_read() -> None:
    assert decode_record(encode_record(VersionRaised(VERSIONS.newest))) == VersionRaised(VERSIONS.newest)
    with pytest.raises(LaterRecord):
        ImageCodec().decode(ImageCodec().encode(fold(MetadataImage(), 1, VersionRaised(VERSIONS.newest + 1))))


def test_a_directory_of_a_later_release_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ClusterSettings(tmp_path, ONE, {ONE: addresses()[ONE]}, secret=b"secret")
    node = ClusterNode(settings)
    node.start(())
    assert node.wait_until_live(20)
    node.stop()
    before = {path: path.read_bytes() for path in sorted((tmp_path / "quorum").iterdir())}
    with monkeypatch.context() as earlier:
        earlier.setattr(metadata_codec, "VERSIONS", ClusterVersions(1, 1))
        with pytest.raises(
            WrittenByLaterRelease, match="the cluster uses version 2, and this release knows versions 1 to 1"
        ):
            ClusterNode(settings)
    assert {path: path.read_bytes() for path in sorted((tmp_path / "quorum").iterdir())} == before
    ClusterNode(settings).stop()


# What waits for a version


def test_share_groups_are_offered_once_all_nodes_know_them() -> None:
    def offered(version: int) -> tuple[set[int], set[str]]:
        answer = api_versions(version)
        return {each["api_key"] for each in answer["api_keys"]}, {each["name"] for each in answer["finalized_features"]}

    (before, features_before), (after, features_after) = offered(1), offered(2)
    assert after - before == set(CAME_WITH) and before < after
    assert features_after - features_before == {"share.version"}
