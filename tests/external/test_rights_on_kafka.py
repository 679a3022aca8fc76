"""Logins to Apache Kafka, and that the rights which docs/external-kafka.md lists are enough."""

from __future__ import annotations

import pytest
from external_topics import consumed, create_topic, produce
from waiting import eventually

from millstream.logcore.errors import LogUnavailable
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.logcore.protocol.channel import AuthenticationFailed
from millstream.server.engine.session import Session

from .conftest import GuardedKafka, Serving

pytestmark = pytest.mark.timeout(240)

_MODULE = "org.apache.kafka.common.security.x.LoginModule required"


def properties(kafka: GuardedKafka, mechanism: str, options: str) -> dict[str, str]:
    return {
        "bootstrap.servers": kafka.guarded_address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"{_MODULE} {options};",
    }


def add_scram_user(kafka: GuardedKafka, name: str, password: str) -> None:
    from confluent_kafka import admin

    client = admin.AdminClient({"bootstrap.servers": kafka.address})
    for mechanism in (admin.ScramMechanism.SCRAM_SHA_256, admin.ScramMechanism.SCRAM_SHA_512):
        credential = admin.ScramCredentialInfo(mechanism, 4096)
        alteration = admin.UserScramCredentialUpsertion(name, credential, password.encode())
        client.alter_user_scram_credentials([alteration])[name].result(30)


def allow(kafka: GuardedKafka, user: str, kind: str, name: str, pattern: str, *operations: str) -> None:
    from confluent_kafka import admin

    client = admin.AdminClient({"bootstrap.servers": kafka.address})
    bindings = [
        admin.AclBinding(
            admin.ResourceType[kind],
            name,
            admin.ResourcePatternType[pattern],
            f"User:{user}",
            "*",
            admin.AclOperation[operation],
            admin.AclPermissionType.ALLOW,
        )
        for operation in operations
    ]
    for made in client.create_acls(bindings).values():
        made.result(30)


def test_every_mechanism_logs_in(kafka: GuardedKafka) -> None:
    add_scram_user(kafka, "ben", "open")
    ben = 'username="ben" password="{}"'
    logins = [
        ("PLAIN", 'username="ana" password="sesame"'),
        ("SCRAM-SHA-256", ben.format("open")),
        ("SCRAM-SHA-512", ben.format("open")),
        ("OAUTHBEARER", 'unsecuredLoginStringClaim_sub="eve"'),
    ]

    def let_in(mechanism: str, options: str) -> bool:
        settings = ExternalLogSettings.of(properties(kafka, mechanism, options), "x")
        try:
            with ExternalLog(settings, patience_s=5) as log:
                return not log.capabilities.columnar
        except (AuthenticationFailed, LogUnavailable):
            return False

    for mechanism, options in logins:
        eventually(lambda mechanism=mechanism, options=options: let_in(mechanism, options), 20)
    assert not let_in("SCRAM-SHA-256", ben.format("wrong"))
    assert not let_in("PLAIN", 'username="ana" password="wrong"')


def test_the_rights_on_the_page_are_enough(kafka: GuardedKafka, serve: Serving, service_id: str) -> None:
    given, made = create_topic(kafka.address, f"given-{service_id}", 1), f"made-{service_id}"
    other = create_topic(kafka.address, f"other-{service_id}", 1)
    prefix = f"millstream-{service_id}-"
    allow(kafka, "ana", "TOPIC", prefix, "PREFIXED", "READ", "WRITE", "CREATE", "DELETE", "DESCRIBE_CONFIGS")
    allow(kafka, "ana", "GROUP", prefix, "PREFIXED", "READ", "DELETE")
    allow(kafka, "ana", "TRANSACTIONAL_ID", prefix, "PREFIXED", "WRITE")
    allow(kafka, "ana", "TOPIC", given, "LITERAL", "READ", "WRITE")
    allow(kafka, "ana", "TOPIC", made, "LITERAL", "WRITE", "CREATE", "READ", "DELETE")
    produce(kafka.address, given, [("a", {"N": 1})])
    service = serve(external=properties(kafka, "PLAIN", 'username="ana" password="sesame"'))
    service.engine.execute(
        f"CREATE STREAM given (u STRING KEY, n INT) WITH (kafka_topic='{given}', value_format='JSON');"
        f"CREATE TABLE made WITH (kafka_topic='{made}', cleanup_policy='delete') AS"
        " SELECT u, SUM(n) AS n FROM given GROUP BY u;"
        "INSERT INTO given (u, n) VALUES ('a', 4);",
        Session(),
    )
    assert [value["N"] for _, value in consumed(kafka.address, made, 2)] == [1, 5]
    (query,) = service.engine.catalog.queries
    service.engine.execute(f"RESET {query};", Session())
    eventually(lambda: [value["N"] for _, value in consumed(kafka.address, made, 2, waits_s=3)] == [1, 5])
    assert other not in service.engine.log.topics(), "of which nobody said anything"
    service.engine.execute("DROP TABLE made DELETE TOPIC;", Session())
    eventually(lambda: made not in service.engine.log.topics())
