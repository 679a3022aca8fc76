"""The ACLs of mirrored topics: which are copied, under which name, and what happens where there are none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from two_logs import rows

from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import Log, open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from millstream.logcore.protocol.requests import acl_requests
from millstream.logcore.protocol.security.acl_bindings import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from millstream.logcore.protocol.security.users import NoUsers
from millstream.logcore.server import LogServer

CHOSEN, NONE = TopicFilter(("orders*",)), TopicFilter(())
READ, WRITE, ALL, DELETE, DESCRIBE = (AclOperation[each] for each in ("READ", "WRITE", "ALL", "DELETE", "DESCRIBE"))
LITERAL, PREFIXED = AclPattern.LITERAL, AclPattern.PREFIXED
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


def acl(
    name: str,
    operation: AclOperation,
    permission: AclPermission = ALLOW,
    pattern: AclPattern = LITERAL,
    user: str = "ana",
    resource: AclResource = AclResource.TOPIC,
) -> AclBinding:
    return AclBinding(resource, name, pattern, f"User:{user}", "*", operation, permission)


THERE = [
    acl("orders", READ),
    acl("orders", WRITE),
    acl("orders", WRITE, DENY, user="ben"),
    acl("orders-eu", ALL),
    acl("orders-eu", DELETE),
    acl("ord", READ, DENY, PREFIXED, user="eve"),
    acl("*", DESCRIBE, user="*"),
    acl("bills", READ),
    acl("orders", READ, resource=AclResource.GROUP),
    acl("kafka-cluster", ALL, resource=AclResource.CLUSTER),
]


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "there", sync="never") as log:
        for name in ("orders", "orders-eu", "bills"):
            log.create_topic(name, 1)
        log.append("orders", 0, rows(b"x"))
        assert log.cluster.acls.create(THERE) == {}
        yield log


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "here", sync="never") as log:
        yield log


@pytest.fixture
def source(there: Log) -> Iterator[KafkaProperties]:
    with LogServer(there, port=0, users=NoUsers()) as server:
        yield KafkaProperties(
            {
                "bootstrap.servers": server.address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
                "sasl.username": "millstream", "sasl.password": there.served.secret,
            }
        )  # fmt: skip


def mirror_exactly(here: Log, source: KafkaProperties, *, acls: bool = True) -> None:
    settings = ExactMirrorSettings("m", CHOSEN, NONE, look_ms=100, acls=acls)
    mirror = ExactMirror(here, MirrorSource(source), settings)
    mirror.look()
    mirror.close()


def mirror_renamed(here: Log, source: KafkaProperties) -> None:
    settings = RenamedMirrorSettings("m", "eu", "us", CHOSEN, NONE, look_ms=100)
    mirror = RenamedMirror(here, MirrorSource(source), settings)
    mirror.look()
    mirror.look()
    mirror.close()


def acls_of(log: Log) -> set[AclBinding]:
    return set(log.cluster.acls.describe(AclFilter()))


def test_exact_copies_are_under_the_acls_of_their_topics(here: Log, source: KafkaProperties) -> None:
    mirror_exactly(here, source)
    assert acls_of(here) == {
        acl("orders", READ),
        acl("orders", WRITE),
        acl("orders", WRITE, DENY, user="ben"),
        acl("orders-eu", READ),
        acl("orders-eu", WRITE),
        acl("orders-eu", DELETE),
        *(acl(name, READ, DENY, user="eve") for name in ("orders", "orders-eu")),
        *(acl(name, DESCRIBE, user="*") for name in ("orders", "orders-eu")),
    }


def test_renamed_topics_are_read_by_who_reads_them_there_and_written_by_nobody(
    here: Log, source: KafkaProperties
) -> None:
    mirror_renamed(here, source)
    assert acls_of(here) == {
        acl("eu.orders", READ),
        acl("eu.orders", WRITE, DENY, user="ben"),
        acl("eu.orders-eu", READ),
        acl("eu.orders-eu", DELETE),
        *(acl(f"eu.{name}", READ, DENY, user="eve") for name in ("orders", "orders-eu")),
        *(acl(f"eu.{name}", DESCRIBE, user="*") for name in ("orders", "orders-eu")),
    }


def test_what_comes_later_is_copied_and_nothing_is_deleted(here: Log, there: Log, source: KafkaProperties) -> None:
    here.cluster.acls.create([acl("orders", READ, user="own")])
    mirror_exactly(here, source)
    before = acls_of(here)
    there.cluster.acls.delete(AclFilter())
    there.cluster.acls.create([acl("orders", READ, user="late")])
    there.create_topic("orders-late", 1)
    mirror_exactly(here, source)
    assert acls_of(here) == {*before, acl("orders", READ, user="late")}
    assert acl("orders", READ, user="own") in before


def test_a_mirror_may_leave_them_out(here: Log, source: KafkaProperties) -> None:
    mirror_exactly(here, source, acls=False)
    assert acls_of(here) == set() and "orders" in here.topics()


def test_a_source_without_acls_is_mirrored_and_logged_once(here: Log, there: Log) -> None:
    with LogServer(there, port=0) as server, capture_logs() as said:
        mirror = ExactMirror(
            here,
            MirrorSource(KafkaProperties({"bootstrap.servers": server.address})),
            ExactMirrorSettings("m", CHOSEN, NONE, look_ms=100),
        )
        for _ in range(3):
            mirror.look()
        assert mirror.board.error is None
        mirror.close()
    warned = [entry for entry in said if entry["event"] == "acls are not copied"]
    assert len(warned) == 1 and "[access]" in warned[0]["reason"]
    assert "orders" in here.topics()


def test_a_log_that_takes_no_more_is_logged(
    here: Log, source: KafkaProperties, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(acl_requests, "ACLS_MAX", len(THERE))
    here.cluster.acls.create([acl(f"other-{number}", READ) for number in range(len(THERE) - 2)])
    with capture_logs() as said:
        mirror_exactly(here, source)
    assert len(acls_of(here)) == len(THERE)
    assert ["no more may" in entry["reason"] for entry in said if entry["event"] == "acls are not copied"] == [True]
