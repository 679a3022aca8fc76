"""ACLs are there after a crash, in a backup, and at each node of a cluster; and begin once each node keeps to them.
librdkafka's administrator makes them."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from running_server import ServerProcess, millstream, service_in
from three_servers import Servers
from waiting import eventually

from millstream.logcore.replication.cluster_version import ClusterVersions
from millstream.logcore.replication.controller import controller
from millstream.server.client import connect
from millstream.server.security.access import hash_password, hash_token

admin = pytest.importorskip("confluent_kafka.admin")

ACCESS: dict[str, Any] = {
    "users": {
        "root": {"password": hash_password("toor"), "tokens": [hash_token("t")], "roles": ["admin"]},
        "ana": {"password": hash_password("sesame"), "tokens": [hash_token("s")], "roles": ["nothing"]},
    },
    "roles": {"admin": {"admin": True}, "nothing": {}},
}
CONFIGURATION = f"""
[access.users.root]
password = "{ACCESS["users"]["root"]["password"]}"
roles = ["admin"]
[access.roles.admin]
admin = true
"""


def login(address: str, name: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": name, "sasl.password": password, "log_level": 0,
    }  # fmt: skip


def administrator(address: str) -> Any:
    return admin.AdminClient(login(address, "root", "toor"))


def binding(name: str, operation: str = "READ", permission: str = "ALLOW", user: str = "ana") -> Any:
    return admin.AclBinding(
        admin.ResourceType.TOPIC, name, admin.ResourcePatternType.LITERAL, f"User:{user}", "*",
        admin.AclOperation[operation], admin.AclPermissionType[permission],
    )  # fmt: skip


def create(client: Any, *bindings: Any) -> None:
    for made in client.create_acls(list(bindings)).values():
        made.result(30)


def names(client: Any) -> set[str]:
    everything = admin.AclBindingFilter(
        admin.ResourceType.ANY, None, admin.ResourcePatternType.ANY, None, None, admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )  # fmt: skip
    return {found.name for found in client.describe_acls(everything).result(30)}


def delete(client: Any, name: str) -> int:
    wanted = admin.AclBindingFilter(
        admin.ResourceType.TOPIC, name, admin.ResourcePatternType.LITERAL, None, None, admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )  # fmt: skip
    (found,) = client.delete_acls([wanted]).values()
    return len(found.result(30))


def started(data: Path, folder: Path) -> tuple[ServerProcess, str]:
    configuration = folder / "server.toml"
    configuration.write_text(CONFIGURATION)
    server = ServerProcess(data, "--config", str(configuration))
    address = next(line for line in server.announced if line.startswith("kafka:")).split()[-1]
    return server, address


@pytest.mark.timeout(240)
def test_a_killed_server_loses_none_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for turn in range(3):
        server, address = started(tmp_path / "data", tmp_path)
        client = administrator(address)
        assert names(client) >= acknowledged
        over = threading.Event()

        def creating(client: Any = client, turn: int = turn, over: threading.Event = over) -> None:
            number = 0
            with contextlib.suppress(Exception):
                while not over.is_set():
                    create(client, binding(f"t{turn}-{number}"))
                    acknowledged.add(f"t{turn}-{number}")
                    number += 1

        thread = threading.Thread(target=creating, daemon=True)
        thread.start()
        before = len(acknowledged)
        eventually(lambda before=before: len(acknowledged) > before + 20, 60)
        server.stop(9)
        over.set()
    server, address = started(tmp_path / "data", tmp_path)
    with server:
        assert names(administrator(address)) >= acknowledged


def test_a_backup_has_them(tmp_path: Path) -> None:
    backups = str(tmp_path / "backups")
    with service_in(tmp_path / "old", access=ACCESS) as service:
        create(administrator(str(service.kafka_address)), binding("before"))
        made = millstream("backup", "create", backups, "--server", f"http://root:toor@{service.http_address}")
        assert made.returncode == 0, made.stderr
        create(administrator(str(service.kafka_address)), binding("after"))
    assert millstream("backup", "restore", backups, "--data", str(tmp_path / "new")).returncode == 0
    with service_in(tmp_path / "new", access=ACCESS) as service:
        assert names(administrator(str(service.kafka_address))) == {"before"}


def produces(address: str, topic: str) -> bool:
    """Whether ana may."""
    from confluent_kafka import KafkaError, Producer

    errors: list[Any] = []
    producer = Producer({**login(address, "ana", "sesame"), "message.timeout.ms": 20_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    (error,) = errors
    if error is None:
        return True
    assert error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._UNKNOWN_TOPIC), error
    return False


@pytest.mark.timeout(240)
def test_each_node_keeps_to_what_was_said_at_another(tmp_path: Path) -> None:
    with contextlib.closing(Servers(tmp_path, access=ACCESS)) as servers:
        wait_until_ready(servers)
        addresses = [str(service.kafka_address) for service in servers.running.values()]
        connect(servers.url(1).replace("//", "//root:toor@")).execute(
            "CREATE STREAM s (v STRING) WITH (kafka_topic='t', value_format='KAFKA', partitions=1);"
        )
        first, second, third = map(administrator, addresses)
        assert not any(produces(address, "t") for address in addresses)
        create(second, binding("t", "WRITE"))
        for address in addresses:
            eventually(lambda address=address: produces(address, "t"), 20)
        assert "t" in topics_of(addresses[0])
        assert delete(first, "t") == 1, "what another node has just created is found"
        for address in addresses:
            eventually(lambda address=address: not produces(address, "t"), 20)
        create(third, binding("t", "READ"))
        ana = servers.url(2).replace("//", "//ana:sesame@")
        eventually(lambda: sees(ana), 20)
        create(first, binding("t", "READ", "DENY"))
        eventually(lambda: not sees(ana), 20)
        number = next(iter(servers.running))
        servers.stop(number)
        servers.start(number)
        again = administrator(str(servers.running[number].kafka_address))
        eventually(lambda: names(again) == {"t"}, 60)


def topics_of(address: str) -> set[str]:
    return set(admin.AdminClient(login(address, "ana", "sesame")).list_topics(timeout=30).topics)


def sees(url: str) -> bool:
    return '"S"' in json.dumps(connect(url).execute("SHOW STREAMS;"))


def wait_until_ready(servers: Servers) -> None:
    def ready() -> bool:
        answers = [httpx.get(f"{servers.url(number)}/info", auth=("root", "toor")) for number in servers.running]
        return all(answer.status_code == 200 for answer in answers)

    eventually(ready, 90)


@pytest.mark.timeout(240)
def test_in_a_cluster_of_an_earlier_release_they_begin_when_it_is_upgraded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(controller, "VERSIONS", ClusterVersions(1, 1))
        servers = Servers(tmp_path, access=ACCESS)
        wait_until_ready(servers)
    with contextlib.closing(servers):
        clients = [administrator(str(service.kafka_address)) for service in servers.running.values()]
        for client in clients:
            with pytest.raises(Exception, match="millstream cluster upgrade"):
                create(client, binding("t"))
        raised = httpx.post(f"{servers.url(1)}/cluster/upgrade", json={}, auth=("root", "toor"), timeout=60)
        assert raised.status_code == 200, raised.text
        eventually(lambda: succeeds(lambda: create(clients[1], binding("t"))), 30)
        for client in clients:
            eventually(lambda client=client: names(client) == {"t"}, 20)


def succeeds(act: Callable[[], object]) -> bool:
    with contextlib.suppress(Exception):
        act()
        return True
    return False
