"""REPLICAS in a WITH clause, and what SHOW TOPICS and DESCRIBE say of it: on a cluster of two, and on one node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millstream.logcore.cluster.node_log import NodeLog
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.server.handlers.assertions import AssertionFailed
from millstream.testing import Sandbox

from ..logcore.cluster.nodes import Cluster

SOURCE = "CREATE STREAM s (id INT KEY, x INT) WITH (kafka_topic='s', partitions=2, value_format='JSON'%s);"


@pytest.fixture(scope="module", params=["in process", "remote"])
def on_two_nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """Topics have two replicas there, if nothing else is said."""
    with Cluster(tmp_path_factory.mktemp("nodes"), 2) as cluster:
        node = cluster.running[1]
        address = trusted_address(node.parts.serving.log, node.kafka.address)
        with NodeLog(node.parts) if request.param == "in process" else RemoteLog(address) as log:
            with Sandbox(log=log) as sandbox:
                sandbox.execute(SOURCE % "")
                yield sandbox


def replicas(sandbox: Sandbox, name: str) -> int:
    """The same in each of the places that show it."""
    described, listed, extended = sandbox.execute(f"DESCRIBE {name}; SHOW TOPICS; SHOW TOPICS EXTENDED;")
    shown = described["sourceDescription"]
    for topics in (listed, extended):
        found = {topic["name"]: topic["replicaInfo"] for topic in topics["topics"]}
        assert found[shown["topic"]] == [shown["replication"]] * shown["partitions"]
    return int(shown["replication"])


def test_a_topic_has_the_replicas_that_its_statement_asks_for(on_two_nodes: Sandbox) -> None:
    on_two_nodes.execute("CREATE STREAM single WITH (replicas=1) AS SELECT * FROM s;")
    on_two_nodes.execute("CREATE STREAM declared (x INT) WITH (partitions=3, replicas=1, value_format='JSON');")
    assert [replicas(on_two_nodes, name) for name in ("s", "single", "declared")] == [2, 1, 1]


def test_a_topic_has_the_default_where_there_are_too_few_nodes(on_two_nodes: Sandbox) -> None:
    on_two_nodes.execute("CREATE STREAM many WITH (replicas=3) AS SELECT * FROM s;")
    assert replicas(on_two_nodes, "many") == 2


def test_an_assertion_knows_the_replicas_of_a_topic(on_two_nodes: Sandbox) -> None:
    on_two_nodes.execute("ASSERT TOPIC s WITH (PARTITIONS=2, REPLICAS=2) TIMEOUT 0 SECONDS;")
    with pytest.raises(AssertionFailed, match="For config replicas, expected 1 got 2"):
        on_two_nodes.execute("ASSERT TOPIC s WITH (REPLICAS=1) TIMEOUT 0 SECONDS;")


def test_one_node_takes_the_statements_of_a_cluster() -> None:
    with Sandbox() as sandbox:
        sandbox.execute(SOURCE % ", replicas=3")
        assert replicas(sandbox, "s") == 1
