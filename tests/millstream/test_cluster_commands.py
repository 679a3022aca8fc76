"""`millstream cluster …` and /cluster, against the machines of a cluster in this thread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from asgi_client import AsgiClient
from starlette.applications import Starlette
from typer.testing import CliRunner, Result

from millstream.cli import app
from millstream.commands import cluster_commands
from millstream.logcore.cluster.operations import Operations
from millstream.logcore.replication.cluster_version import VERSIONS
from millstream.logcore.replication.machine import NodeId
from millstream.repl.text.cluster_text import is_well, status_lines
from millstream.server import client as server_client
from millstream.server.catalog.command_topic import COMMAND_TOPIC
from millstream.server.client import HttpClient, RemoteError
from millstream.server.cluster.admin import cluster_routes
from millstream.server.http.context import Workers
from millstream.server.http.errors import NO_ENGINE
from tests.logcore.cluster.hand_cluster import HandCluster

Run = Callable[..., Result]


class HandClient(HttpClient):
    """Asks the application in this thread; meanwhile time goes on in the cluster."""

    hand: HandCluster
    asgi: AsgiClient
    starts: ClassVar[int] = 0
    """How often the engine is asked for before it answers."""

    def info(self) -> dict[str, object]:
        HandClient.starts -= 1
        if HandClient.starts >= 0:
            raise RemoteError("no node of the cluster runs the engine", NO_ENGINE)
        return {}

    def cluster(self, action: str | None = None, body: object = None) -> dict[str, object]:
        self.hand.pass_time(200)
        answer = self.asgi.get("/cluster") if action is None else self.asgi.post(f"/cluster/{action}", body)
        if answer.status_code >= 400:
            raise RemoteError(answer.json()["message"], answer.json()["error_code"])
        return answer.json()


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[HandCluster]:
    cluster, workers = HandCluster(racks=("a", "b", "c")), Workers()
    cluster.create_topic("clicks", 2)
    monkeypatch.setattr(HandClient, "starts", 0)
    monkeypatch.setattr(HandClient, "hand", cluster, raising=False)
    routes = cluster_routes(Operations(cluster.port(), "test"), workers, 1 << 20)
    monkeypatch.setattr(HandClient, "asgi", AsgiClient(Starlette(routes=routes)), raising=False)
    monkeypatch.setattr(server_client, "HttpClient", HandClient)
    monkeypatch.setattr(cluster_commands, "_POLL_S", 0.0)
    yield cluster
    workers.close()


@pytest.fixture
def run(hand: HandCluster) -> Run:
    return lambda *arguments, input="": CliRunner().invoke(app, ["cluster", *map(str, arguments)], input=input)


def with_node_4(hand: HandCluster, run: Run) -> None:
    assert run("add-node", "4@host:9004").stdout == "node 4 may join\n"
    hand.start(4)
    hand.until(lambda: hand.image.is_live(NodeId(4)))


def replicas(run: Run, partition: int = 0) -> list[int]:
    return json.loads(run("status", "--json").stdout)["partitions"][partition]["replicas"]


# Looking


def test_status_shows_nodes_and_that_all_is_well(run: Run) -> None:
    lines = run("status").stdout.splitlines()
    assert lines[0].startswith("cluster test: node ")
    assert [line.split()[0] for line in lines[4:7]] == ["1", "2", "3"]
    assert "host:9001" in lines[4]
    assert lines[-1] == "2 partitions: all replicas in sync"


def test_status_names_the_partitions_that_lack_a_replica(hand: HandCluster, run: Run) -> None:
    gone = next(node for node in (3, 2) if not hand.nodes[NodeId(node)].controller.active)
    hand.stop(gone)
    hand.until(lambda: not hand.image.is_live(NodeId(gone)))
    shown = run("status").stdout
    assert "2 partitions: 2 under-replicated" in shown
    assert "clicks" in shown
    assert "fenced" in shown


def test_status_waits_until_all_is_well_and_says_by_its_exit_code_whether_it_is(hand: HandCluster, run: Run) -> None:
    assert run("status", "--wait", 5).exit_code == 0
    hand.stop(3)
    hand.until(lambda: not hand.image.is_live(NodeId(3)))
    assert run("status", "--wait", 0.1).exit_code == 1
    hand.start(3)
    assert run("status", "--wait", 20).exit_code == 0


def test_status_waits_for_the_engine(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HandClient, "starts", 3)
    assert run("status", "--wait", 20).exit_code == 0
    assert HandClient.starts == -1
    monkeypatch.setattr(HandClient, "starts", 1_000_000)
    late = run("status", "--wait", 0.1)
    assert late.exit_code == 1
    assert late.stdout.startswith("cluster test: node ")


def test_status_shows_the_engine_that_it_has_waited_for(
    hand: HandCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(_: HandClient) -> dict[str, object]:
        if COMMAND_TOPIC not in {topic.name for topic in hand.image.topics.values()}:
            hand.create_topic(COMMAND_TOPIC)
        return {}

    monkeypatch.setattr(HandClient, "info", starts)
    waited = run("status", "--wait", 20)
    assert waited.exit_code == 0
    assert ", engine" in waited.stdout


def test_status_for_programs_has_what_follows_from_the_replicas(run: Run) -> None:
    partition = json.loads(run("status", "--json").stdout)["partitions"][0]
    flags = {name: partition[name] for name in ("offline", "underReplicated", "underMinInSync", "moving")}
    assert set(flags.values()) == {False}


# Moving


def test_a_partition_is_moved_with_progress_and_the_throttle_is_lifted_afterwards(hand: HandCluster, run: Run) -> None:
    hand.produce("clicks", count=40, size=100_000)
    with_node_4(hand, run)
    moved = run("reassign", "clicks", 0, "--to", "4,1,2", "--throttle", 1)
    assert moved.exit_code == 0, moved.output
    *progress, last = moved.stdout.splitlines()
    assert last == "1 partitions moved"
    assert progress[0].startswith("clicks-0: node 4 has ")
    assert len(progress) > 1
    assert replicas(run) == [4, 1, 2]
    assert json.loads(run("status", "--json").stdout)["throttle"] is None


def test_a_plan_is_shown_and_not_done(hand: HandCluster, run: Run) -> None:
    hand.produce("clicks", count=3)
    with_node_4(hand, run)
    before = replicas(run)
    lines = run("reassign", "--empty", 3, "--plan").stdout.splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["clicks", "clicks"]
    assert lines[-1] == "2 partitions change, 0.0 MB are to be copied"
    assert replicas(run) == before


def test_a_node_is_emptied_and_removed(hand: HandCluster, run: Run) -> None:
    with_node_4(hand, run)
    assert "2 partitions moved" in run("reassign", "--empty", 3).stdout
    told = run("remove-node", 3)
    assert told.exit_code == 0
    assert "node 3 has no replicas and no vote any more: stop it" in told.output
    hand.stop(3)
    hand.until(lambda: not hand.image.is_live(NodeId(3)))
    removed = run("remove-node", 3)
    assert "node 3 is removed from the cluster" in removed.output
    assert "2 voters survive the loss of no more nodes than 1 do" in removed.output
    assert run("add-node", "4@host:9004", "--voter").stdout == "node 4 is a voter\n"


def test_a_balance_gives_a_new_node_its_share(hand: HandCluster, run: Run) -> None:
    hand.create_topic("views", 6)
    with_node_4(hand, run)
    assert run("reassign", "--balance").exit_code == 0
    counts = {node["id"]: node["replicas"] for node in json.loads(run("status", "--json").stdout)["nodes"]}
    assert counts == {1: 6, 2: 6, 3: 6, 4: 6}
    assert run("reassign", "--balance").stdout == "nothing to move\n"


def test_moves_under_way_are_called_off(hand: HandCluster, run: Run) -> None:
    hand.produce("clicks", count=40, size=100_000)
    with_node_4(hand, run)
    assert "throttle applies" in run("reassign", "clicks", 0, "--to", "4,1,2", "--throttle", 0.001, "--no-wait").stdout
    assert "copied at 0.001 MB/s" in run("status").stdout
    assert run("reassign", "--cancel").stdout == "1 moves cancelled\n"
    assert run("throttle", "off").exit_code == 0
    assert sorted(replicas(run)) == [1, 2, 3]


# Leaders


def test_an_unclean_election_asks_first_and_can_be_declined(hand: HandCluster, run: Run) -> None:
    declined = run("elect", "clicks", 0, "--unclean", input="n\n")
    assert declined.exit_code == 1
    assert "LOST" in declined.output
    assert "elected" not in declined.stdout
    assert "nothing to elect" in run("elect", "clicks", 0, "--unclean", "--yes").stdout


def test_preferred_leaders_are_elected(hand: HandCluster, run: Run) -> None:
    preferred = replicas(run)[0]
    hand.stop(preferred)
    hand.until(lambda: not hand.image.is_live(NodeId(preferred)))
    hand.start(preferred)
    if preferred == 1:
        hand.pass_time(5_000)
    assert run("status", "--wait", 20).exit_code == 0
    assert "clicks-0" in run("elect", "clicks").stdout


# Upgrades


def test_a_cluster_of_one_release_has_nothing_to_raise(hand: HandCluster, run: Run) -> None:
    assert "version" not in run("status").stdout
    assert run("upgrade").stdout == f"the cluster uses version {VERSIONS.newest}\n"


@pytest.mark.parametrize(
    ("used", "spoken", "said"),
    [
        (1, {1: 2, 2: 1, 3: 2}, "it uses version 1: node 2 does not say yet to speak version 2"),
        (1, {1: 1, 2: None, 3: 2}, "it uses version 1: nodes 1, 2 do not say yet to speak version 2"),
        (1, {1: 2, 2: 2}, "it uses version 1, and every node speaks version 2: `millstream cluster upgrade` raises it"),
        (2, {1: 2, 2: 1}, None),
        (1, {1: 1, 2: None}, None),
    ],
)
def test_status_says_what_an_upgrade_lacks(
    hand: HandCluster, run: Run, used: int, spoken: dict[int, int | None], said: str | None
) -> None:
    status = json.loads(run("status", "--json").stdout)
    like = status["nodes"][0]
    status["nodes"] = [{**like, "id": node, "newestVersion": version} for node, version in spoken.items()]
    status["version"] = used
    assert [line for line in status_lines(status) if line.startswith("it uses")] == ([] if said is None else [said])


def test_status_of_a_server_of_an_earlier_release_is_shown(hand: HandCluster, run: Run) -> None:
    status = json.loads(run("status", "--json").stdout)
    del status["version"]
    for node in status["nodes"]:
        del node["newestVersion"]
    assert len(list(status_lines(status))) > len(status["nodes"])
    assert not [line for line in status_lines(status) if line.startswith("it uses")]


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reassign",), "nothing to move is given; give TOPIC PARTITION --to NODES, --empty NODE or --balance"),
        (("reassign", "--balance", "--empty", 1), "nothing to move is given"),
        (("reassign", "clicks"), "no partition is given; give TOPIC PARTITION, as `clicks 0`"),
        (("reassign", "clicks", 0), "no target nodes are given; give --to with their numbers, as --to 1,2,4"),
        (("reassign", "clicks", 0, "--to", "1,x"), "no target nodes are given"),
        (("reassign", "clicks", 9, "--to", "1"), 'there is no partition 9 of a topic "clicks"'),
        (("reassign", "--balance", "--to", "1"), "these flags exclude each other; --to belongs to a topic"),
        (("reassign", "--cancel", "--balance"), "these flags exclude each other; --cancel takes a topic"),
        (("reassign", "--empty", 9), "there is no node 9 in this cluster"),
        (("throttle", "fast"), '"fast" is not a rate; give megabytes per second, as 20, or off'),
        (("throttle", "0"), '"0" is not a rate'),
        (("add-node", "4"), '"4" is not a node; write NODE@HOST:PORT, as 4@10.0.0.4:9093'),
        (("add-node", "4@host"), '"host" is no address of a node'),
        (("elect", "nothing"), 'there is no topic "nothing"'),
        (("remove-node", 9), "there is no node 9 in this cluster"),
        (("remove-node", 1), "no other node is up that has none of it"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(run: Run, arguments: tuple[object, ...], message: str) -> None:
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert message in refused.output.replace("\n", "; ")


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("plan", {}, 'needs a node under "empty", a "factor", or "balance": true'),
        ("reassign", {"moves": []}, 'needs a list of 1 to 10000 moves under "moves"'),
        ("reassign", {"moves": [1]}, "a move is an object with topic, partition and replicas"),
        ("reassign", {"moves": [{"topic": "clicks", "partition": 0, "replicas": ["1"]}]}, "needs a list of nodes"),
        ("reassign", {"moves": [{"partition": 0, "replicas": [1]}]}, 'a text under "topic"'),
        ("throttle", {}, 'a non-negative integer under "bytesPerSecond"'),
        ("throttle", {"bytesPerSecond": 0}, "a number of bytes per second above 0"),
        ("elect", {"topic": 1}, 'a text under "topic"'),
        ("add-node", {"node": -1, "address": "host:1"}, 'a non-negative integer under "node"'),
        ("remove-node", {"node": True}, 'a non-negative integer under "node"'),
    ],
)
def test_requests_that_say_nothing_are_refused(
    hand: HandCluster, action: str, body: dict[str, object], message: str
) -> None:
    with pytest.raises(RemoteError) as caught:
        HandClient("http://test").cluster(action, body)
    assert message in caught.value.message
    assert caught.value.error_code // 100 == 400


def test_a_server_that_is_one_node_says_so(tmp_path: Path) -> None:
    workers = Workers()
    client = AsgiClient(Starlette(routes=cluster_routes(None, workers, 1 << 20)))
    for answer in (client.get("/cluster"), client.post("/cluster/elect", {"topic": "clicks"})):
        assert answer.status_code == 400
        assert "this server is a single node and not part of a cluster" in answer.json()["message"]
        assert "--node" in answer.json()["message"]
    workers.close()


# Growing and shrinking


def test_all_topics_get_more_replicas_and_fewer_by_one_command_with_progress(hand: HandCluster, run: Run) -> None:
    hand.create_topic("small", 2, replicas=1)
    hand.produce("small", count=20)
    planned = run("replication", "--factor", 3, "--plan").stdout
    assert "small" in planned and "clicks" not in planned
    raised = run("replication", "--factor", 3)
    assert raised.stdout.splitlines()[-1] == "2 partitions moved", raised.output
    found = {
        (each["topic"], each["partition"]): each for each in json.loads(run("status", "--json").stdout)["partitions"]
    }
    assert all(sorted(each["replicas"]) == [1, 2, 3] == sorted(each["inSync"]) for each in found.values())
    small = hand.image.topic_ids["small"]
    assert hand.image.configs[small] == {"min.insync.replicas": "2"}, "as a new topic with three replicas has it"
    assert {state.min_isr for state in hand.image.topics[small].partitions} == {2}
    leaders = {state.partition: state.leader for state in hand.image.topics[small].partitions}
    assert run("replication", "--factor", 1, "small").stdout.splitlines()[-1] == "2 partitions moved"
    after = {state.partition: state for state in hand.image.topics[small].partitions}
    assert {number: (state.leader, state.replicas, state.min_isr) for number, state in after.items()} == {
        number: (leader, (leader,), 1) for number, leader in leaders.items()
    }
    assert run("replication", "--factor", 3, "clicks").stdout == "nothing to move\n"
    refused = run("replication", "--factor", 4)
    assert refused.exit_code == 1 and "4 replicas of clicks-0 need as many nodes that are up" in refused.output


def test_a_node_that_is_up_is_emptied_then_stopped_then_removed(hand: HandCluster, run: Run) -> None:
    hand.create_topic("small", 3, replicas=1)
    gone = next(node for node in (3, 2) if not hand.nodes[NodeId(node)].controller.active)
    refused = run("remove-node", gone)
    assert refused.exit_code == 1 and "no other node is up that has none of it" in refused.output
    assert "millstream cluster replication --factor" in refused.output
    assert run("replication", "--factor", 2).exit_code == 0
    emptied = run("remove-node", gone)
    assert f"node {gone} has no replicas and no vote any more: stop it" in emptied.stdout, emptied.output
    assert gone not in hand.active.controller.quorum.log.voters.voters
    hand.stop(gone)
    hand.until(lambda: not hand.image.is_live(NodeId(gone)))
    assert f"node {gone} is removed from the cluster" in run("remove-node", gone).stdout
    assert all(gone not in state.replicas for state in hand.image.partitions())


def test_a_node_that_is_down_and_has_the_last_replica_is_not_given_up(hand: HandCluster, run: Run) -> None:
    gone = next(node for node in (3, 2) if not hand.nodes[NodeId(node)].controller.active)
    hand.create_topic("small", 3, replicas=1)
    assert run("replication", "--factor", 2, "clicks").exit_code == 0
    hand.stop(gone)
    hand.until(lambda: not hand.image.is_live(NodeId(gone)))
    refused = run("remove-node", gone)
    assert (
        refused.exit_code == 1 and f"node {gone} is down, and no other that is up has all of small-" in refused.output
    )


@pytest.mark.parametrize(("address", "well"), [("127.0.0.1:9091", True), (":0", False), (None, False)])
def test_a_cluster_is_not_well_before_its_nodes_have_said_where_they_are(address: str | None, well: bool) -> None:
    """A server that was alone has no address, until it registers as a node of a cluster."""
    status = {"controller": 1, "nodes": [{"state": "up", "address": address}], "partitions": []}
    assert is_well(status) is well


def test_status_says_which_node_runs_the_engine(hand: HandCluster, run: Run) -> None:
    assert json.loads(run("status", "--json").stdout)["engine"] is None
    assert "engine" not in run("status").stdout
    hand.create_topic(COMMAND_TOPIC)
    partitions = json.loads(run("status", "--json").stdout)["partitions"]
    leader = next(each["leader"] for each in partitions if each["topic"] == COMMAND_TOPIC)
    assert json.loads(run("status", "--json").stdout)["engine"] == leader
    roles = [line.split("|")[2].strip() for line in run("status").stdout.splitlines() if line.count("|") == 9]
    assert ["engine" in role for role in roles[1:]] == [node == leader for node in (1, 2, 3)]
