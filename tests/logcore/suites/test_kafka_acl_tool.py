"""Kafka's tool for ACLs, on a server with users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from running_server import service_in

from millstream.server.security.access import hash_password

from .kafka_tools import Asked, KafkaTools
from .tool_calls import Call

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

_TOOL = "AclCommand"
_LOGIN = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="root" password="toor";
"""


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[KafkaTools]:
    running = KafkaTools(tmp_path / "classes")
    yield running
    running.close()


def test_acls_are_added_listed_and_removed(tools: KafkaTools, tmp_path: Path) -> None:
    access = {
        "users": {"root": {"password": hash_password("toor"), "roles": ["admin"]}},
        "roles": {"admin": {"admin": True}},
    }
    login = tmp_path / "root.properties"
    login.write_text(_LOGIN)
    with service_in(tmp_path / "data", access=access) as service:
        asked = Asked(str(service.kafka_address), 0, {"login": login})

        def run(arguments: str) -> str:
            said = tools.run(Call(_TOOL, f"{arguments} --command-config {{login}}"), asked)
            assert said.code == 0, said
            return "\n".join(said.lines)

        run("--add --allow-principal User:ana --producer --topic orders")
        run("--add --allow-principal User:ana --consumer --topic ord --group g --resource-pattern-type prefixed")
        run("--add --deny-principal User:* --deny-host 10.0.0.1 --operation All --cluster")
        found = run("--list")
        for resource in ("TOPIC, name=orders, patternType=LITERAL", "GROUP, name=g, patternType=PREFIXED"):
            assert f"resourceType={resource}" in found, found
        assert "operation=WRITE" in found and "name=kafka-cluster" in found and "permissionType=DENY" in found
        assert "name=ord," in run("--list --topic orders --resource-pattern-type match")
        assert "name=ord," not in run("--list --topic orders")
        run("--remove --force --topic orders --resource-pattern-type match")
        left = run("--list")
        assert "resourceType=TOPIC" not in left and "resourceType=GROUP" in left
