"""The Kafka listener with users and TLS, by the eyes of clients that are not ours."""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from certificates import make_certificates
from cheap_hashes import cheap_hash
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from waiting import eventually

from millstream.logcore import client as log_client
from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.logcore.log import Log
from millstream.logcore.protocol.channel import Address, AuthenticationFailed, Channel, Channels
from millstream.logcore.protocol.security.sasl import Credentials
from millstream.logcore.protocol.wire import produce_messages as produce
from millstream.logcore.protocol.wire.apis import Api
from millstream.logcore.protocol.wire.produce_messages import ProduceData, ProduceRequest
from millstream.logcore.records.codec import encode
from millstream.logcore.remote import RemoteLog, trusted_address
from millstream.server.config.configuration import InvalidConfiguration, load_configuration
from millstream.server.security.access import hash_token
from millstream.server.security.scram_texts import scram_texts
from millstream.server.service import Service

from ..logcore.log_records import rows, values_of

ORDERS, NOWHERE = log_client.TopicPartition("orders", 0), log_client.TopicPartition("orders", 9)
ROLES: dict[str, Any] = {
    "writer": {"insert": ["orders*"], "transaction": ["import-*"]},
    "reader": {"read": ["orders*"], "group": ["report-*"]},
    "owner": {"ddl": ["orders*"]},
    "root": {"admin": True},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("kafka")
    make_certificates(made, "carl")
    return made


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """Ana writes, Ben reads, Carl (by certificate) owns, Root may do everything."""
    users = {
        "ana": {"password": cheap_hash("sesame"), "scram": scram_texts("sesame"), "roles": ["writer"]},
        "ben": {"scram": scram_texts("open"), "tokens": [hash_token("a-token")], "roles": ["reader"]},
        "carl": {"roles": ["owner"]},
        "root": {"password": cheap_hash("toor"), "roles": ["root"]},
    }
    tls = {"certificate": folder / "server.pem", "key": folder / "server.key", "client_ca": folder / "ca.pem"}
    given = {
        "data": folder / "data", "http": "127.0.0.1:0", "kafka": "127.0.0.1:0", "executor": "duckdb",
        "access": {"users": users, "roles": ROLES}, "kafka_tls": {**tls, "client_certificates": "optional"},
    }  # fmt: skip
    with Service(load_configuration(None, given)) as running:
        running.engine.log.create_topic("orders", 1)
        running.engine.log.create_topic("salaries", 1)
        yield running


Settings = Callable[..., dict[str, Any]]


@pytest.fixture
def login(service: Service, folder: Path) -> Settings:
    """What a client is configured with."""

    def settings(name: str, password: str, mechanism: str = "PLAIN", **others: Any) -> dict[str, Any]:
        more = {key.replace("_", "."): value for key, value in others.items()}
        return {
            "bootstrap.servers": str(service.kafka_address), "security.protocol": "SASL_SSL", "log_level": 0,
            "ssl.ca.location": str(folder / "ca.pem"), "sasl.mechanism": mechanism, "sasl.username": name,
            "sasl.password": password, **more,
        }  # fmt: skip

    return settings


def sent(settings: dict[str, Any], topic: str) -> KafkaError | None:
    """What became of a record."""
    outcome: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 8000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcome.append(error))
    producer.flush(10)
    return outcome[0] if outcome else None


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_may_insert_produces_and_nothing_else(login: Settings, mechanism: str) -> None:
    ana = login("ana", "sesame", mechanism)
    assert sent(ana, "orders") is None
    refused = sent(ana, "salaries")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_who_may_read_consumes_in_groups_that_are_given_to_them(login: Settings, service: Service) -> None:
    service.engine.log.append("orders", 0, rows(b"an order"))
    ben = login("ben", "open", "SCRAM-SHA-256", group_id="report-1", auto_offset_reset="earliest")
    consumer = Consumer(ben)
    consumer.subscribe(["orders"])
    message = next(found for found in iter(lambda: consumer.poll(10), None) if not found.error())
    assert message.topic() == "orders"
    consumer.commit(message=message, asynchronous=False)
    assert service.engine.log.committed_offsets("report-1")
    consumer.close()
    stranger = Consumer({**ben, "group.id": "billing"})
    stranger.subscribe(["orders"])
    refused = stranger.poll(20)  # by whoever is asked for the coordinator, as with Apache Kafka
    error = refused.error() if refused else None
    assert error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    stranger.close()
    refused_record = sent(login("ben", "open", "SCRAM-SHA-512"), "orders")
    assert refused_record is not None and refused_record.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_certificate_says_who_somebody_is(service: Service, folder: Path) -> None:
    carl = AdminClient(
        {
            "bootstrap.servers": str(service.kafka_address), "security.protocol": "SSL", "log_level": 0,
            "ssl.ca.location": str(folder / "ca.pem"), "ssl.certificate.location": str(folder / "carl.pem"),
            "ssl.key.location": str(folder / "carl.key"),
        }
    )  # fmt: skip
    assert list(carl.list_topics(timeout=60).topics) == ["orders"], "others are not shown"
    made = carl.create_topics([NewTopic("orders-new", 1), NewTopic("other", 1)], request_timeout=10)
    made["orders-new"].result(60)
    with pytest.raises(KafkaException) as refused:
        made["other"].result(60)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_transactions_need_a_right_on_their_id(login: Settings) -> None:
    allowed = Producer(login("ana", "sesame", transactional_id="import-1"))
    allowed.init_transactions(10)
    allowed.begin_transaction()
    allowed.produce("orders", b"t")
    allowed.commit_transaction(10)
    with pytest.raises(KafkaException) as refused:
        Producer(login("ana", "sesame", transactional_id="other")).init_transactions(10)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def address_of(service: Service) -> Address:
    host, port = str(service.kafka_address).split(":")
    return Address(host, int(port))


def test_records_of_a_transaction_need_the_right_too(service: Service, folder: Path) -> None:
    tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    ana = Channel(address_of(service), Credentials("ana", "sesame"), tls)
    (batch,) = encode(rows(b"x"))
    sent = ProduceRequest("other", -1, 1000, [ProduceData(partition, batch.buffers) for partition in (ORDERS, NOWHERE)])
    response = ana.ask(Api.PRODUCE, lambda version: produce.write_request(sent, version))
    ana.close()
    results = produce.read_response(response.message, response.position, response.version)
    assert [result.error_code for result in results] == [ErrorCode.transactional_id_authorization_failed] * 2


@pytest.fixture
def channels(service: Service, folder: Path) -> Iterator[Callable[[str, str], Channels]]:
    """For requests as no library sends them."""
    opened: list[Channels] = []

    def open_as(name: str, password: str) -> Channels:
        tls = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        opened.append(Channels(address_of(service), Credentials(name, password), tls))
        return opened[-1]

    yield open_as
    for each in opened:
        each.close()


def test_only_administrators_move_and_elect(channels: Callable[[str, str], Channels]) -> None:
    """An election may cost records."""
    topics = [{"topic": "orders", "partitions": [0]}]
    election = {"election_type": 1, "topic_partitions": topics, "timeout": timedelta(seconds=1)}
    moves = {
        "timeout": timedelta(seconds=1),
        "topics": [{"name": "orders", "partitions": [{"partition_index": 0, "replicas": [1]}]}],
    }
    answers = {
        name: [
            asking.ask(api, fields).error_code.name
            for api, fields in ((Api.ELECT_LEADERS, election), (Api.ALTER_PARTITION_REASSIGNMENTS, moves))
        ]
        for name, asking in (("ana", channels("ana", "sesame")), ("root", channels("root", "toor")))
    }
    assert answers == {"ana": ["cluster_authorization_failed"] * 2, "root": ["none"] * 2}


def test_nobody_makes_a_member_of_a_group_of_others_leave(
    login: Settings, service: Service, channels: Callable[[str, str], Channels]
) -> None:
    """The name of a static member is enough for that."""
    ben = login("ben", "open", "SCRAM-SHA-256", group_id="report-2", group_instance_id="one")
    member = Consumer(ben)
    member.subscribe(["orders"])
    while not member.assignment():
        member.poll(0.1)
    ana = channels("ana", "sesame")
    members = [{"member_id": "", "group_instance_id": "one"}]
    left = ana.ask(Api.LEAVE_GROUP, {"group_id": "report-2", "members": members})
    beat = {"group_id": "report-2", "generation_id": 1, "member_id": "x", "group_instance_id": "one"}
    beaten = ana.ask(Api.HEARTBEAT, beat)
    assert (left.error_code.name, beaten.error_code.name) == ("group_authorization_failed",) * 2
    assert len(cast(Log, service.engine.log).groups.describe("report-2").members) == 1
    member.close()


def test_who_guesses_a_producer_id_does_nothing_to_its_transaction(
    login: Settings, service: Service, channels: Callable[[str, str], Channels]
) -> None:
    producer = Producer(login("ana", "sesame", transactional_id="import-guessed"))
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"guessed")
    producer.flush(10)
    log = cast(Log, service.engine.log)
    (known,) = [
        found.identity for found in log.served.transactions() if found.identity.transactional_id == "import-guessed"
    ]
    who = {"transactional_id": "import-guessed", "producer_id": known.producer_id, "producer_epoch": known.epoch}
    old = {f"v3_and_below_{name}": value for name, value in who.items()}
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    offsets = [{"name": "orders", "partitions": [partition]}]
    topics = [{"name": "orders", "partitions": [0]}]
    ben = channels("ben", "a-token")
    added = ben.ask(Api.ADD_PARTITIONS_TO_TXN, {**old, "v3_and_below_topics": topics})
    committed = ben.ask(Api.TXN_OFFSET_COMMIT, {**who, "group_id": "report-1", "topics": offsets})
    answers = [
        ben.ask(Api.END_TXN, {**who, "committed": False}).error_code,
        ben.ask(Api.ADD_OFFSETS_TO_TXN, {**who, "group_id": "report-1"}).error_code,
        added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        committed.topics[0].partitions[0].error_code,
    ]
    assert [answer.name for answer in answers] == ["transactional_id_authorization_failed"] * 4
    producer.commit_transaction(10)
    eventually(lambda: values_of(log, "orders")[-1] == b"guessed", 60)


def test_administrators_see_and_do_everything_but_what_is_millstreams(login: Settings) -> None:
    root = AdminClient(login("root", "toor"))
    assert {"orders", "salaries", "_millstream-command"} <= root.list_topics(timeout=60).topics.keys()
    with pytest.raises(KafkaException):
        root.delete_topics(["_millstream-command"])["_millstream-command"].result(60)


def test_who_does_not_know_the_password_gets_nothing(login: Settings) -> None:
    wrong = [
        ("ana", "wrong", "PLAIN"), ("ana", "wrong", "SCRAM-SHA-256"), ("nobody", "x", "SCRAM-SHA-512"),
        ("nobody", "x", "PLAIN"), ("root", "toor", "SCRAM-SHA-256"), ("carl", "-", "PLAIN"),
        ("millstream", "x", "PLAIN"),
    ]  # fmt: skip
    errors: dict[tuple[str, ...], list[int]] = {attempt: [] for attempt in wrong}
    clients: list[AdminClient] = []
    for attempt, codes in errors.items():
        settings: dict[str, Any] = {**login(*attempt)}
        settings["error_cb"] = lambda error, codes=codes: codes.append(error.code())
        clients.append(AdminClient(settings))
    with pytest.raises(KafkaException):
        clients[0].list_topics(timeout=2)
    for client in clients:
        client.poll(0.1)
    refused = KafkaError._AUTHENTICATION
    assert {attempt: refused in codes for attempt, codes in errors.items()} == dict.fromkeys(wrong, True)


def test_a_client_without_a_login_is_not_answered(service: Service, folder: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    address = (service.kafka_address.host, service.kafka_address.port)
    metadata = struct.pack(">hhih", 3, 0, 1, -1) + struct.pack(">i", 0)
    with (
        socket.create_connection(address, timeout=60) as plain,
        trusting.wrap_socket(plain, server_hostname="127.0.0.1") as peer,
    ):
        peer.sendall(struct.pack(">i", len(metadata)) + metadata)
        assert peer.recv(1) == b""
    with socket.create_connection(address, timeout=60) as plain, suppress(ConnectionError):
        plain.sendall(struct.pack(">i", len(metadata)) + metadata)
        assert plain.recv(1) in (b"", b"\x15"), "an alert of TLS, if anything"


def test_our_own_client_logs_in_over_tls(service: Service, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
    address = str(service.kafka_address)
    with RemoteLog(f"tls://ben:a-token@{address}") as ben:
        assert b"an order" in values_of(ben, "orders")
    with RemoteLog(f"tls://root:toor@{address}") as root:
        root.append("salaries", 0, rows(*[b"x" * 1000] * 3000))
        assert len(values_of(root, "salaries")) == 3000
    with pytest.raises(AuthenticationFailed):
        RemoteLog(f"tls://root:wrong@{address}").topics()
    with RemoteLog(f"tls://{trusted_address(cast(Log, service.engine.log).served, address)}") as ours:
        assert "_millstream-command" in ours.topics()


def test_passwords_do_not_travel_in_plain_text_to_kafka_either() -> None:
    access = {"users": {"ana": {"roles": []}}}
    with pytest.raises(InvalidConfiguration, match="kafka_tls"):
        load_configuration(None, {"data": "d", "access": access, "kafka": "0.0.0.0:9092"})
    load_configuration(None, {"data": "d", "access": {**access, "plain_text": True}, "kafka": "0.0.0.0:9092"})
    with pytest.raises(InvalidConfiguration, match="millstream access scram"):
        load_configuration(None, {"data": "d", "access": {"users": {"ana": {"scram": ["SCRAM-SHA-256$1$a$b$c"]}}}})


def test_the_examples_of_the_manual_can_be_configured(folder: Path, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()
    examples = "".join(part.partition("```")[0] for part in page.split("```toml\n")[1:])
    first, second = scram_texts("sesame")
    examples = examples.replace("SCRAM-SHA-256$8192$…", first).replace("SCRAM-SHA-512$8192$…", second)
    for name in ("server.pem", "server.key", "ca.pem"):
        examples = examples.replace(f'"{name}"', f'"{folder / name}"')
    file = tmp_path / "server.toml"
    file.write_text(examples)
    configured = load_configuration(file, {"data": tmp_path})
    assert configured.kafka_tls is not None and configured.kafka_tls.context() is not None
    assert configured.access is not None and configured.access.roles["orders"].transaction == ("import-*",)


def test_offsets_of_clients_expire_and_those_of_millstream_do_not(service: Service) -> None:
    log = service.engine.log
    assert isinstance(log, Log)
    assert log.node.expires("report-1")
    assert not log.node.expires("_millstream-anything")


def test_a_password_set_over_the_protocol_holds_before_that_of_the_configuration(
    login: Settings, channels: Callable[[str, str], Channels]
) -> None:
    salted = hashlib.pbkdf2_hmac("sha256", b"new", b"salt", 4096)
    put = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": salted}

    def altered(name: str, password: str, of: str, **change: Any) -> str:
        asked = {"upsertions": [], "deletions": [], **change}
        (result,) = channels(name, password).ask(Api.ALTER_USER_SCRAM_CREDENTIALS, asked).results
        assert result.user == of
        return result.error_code.name

    assert altered("ana", "sesame", "ana", upsertions=[{"name": "ana", **put}]) == "cluster_authorization_failed"
    assert altered("root", "toor", "eve", upsertions=[{"name": "eve", **put}]) == "unacceptable_credential"
    assert altered("root", "toor", "ana", upsertions=[{"name": "ana", **put}]) == "none"
    assert sent(login("ana", "new", "SCRAM-SHA-256"), "orders") is None
    assert sent(login("ana", "sesame", "SCRAM-SHA-256"), "orders") is not None
    assert altered("root", "toor", "ana", deletions=[{"name": "ana", "mechanism": 1}]) == "none"
    assert sent(login("ana", "sesame", "SCRAM-SHA-256"), "orders") is None
    assert altered("root", "toor", "ana", deletions=[{"name": "ana", "mechanism": 1}]) == "unacceptable_credential"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_external_log_logs_in_with_the_properties_of_kafkas_clients(
    service: Service, folder: Path, mechanism: str
) -> None:
    def connected(password: str) -> ExternalLog:
        properties = {
            "bootstrap.servers": str(service.kafka_address),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f'x.y.LoginModule required username="ana" password="{password}";',
            "ssl.truststore.location": str(folder / "ca.pem"),
        }
        return ExternalLog(ExternalLogSettings.of(properties, "ms_"))

    with connected("sesame") as log:
        assert "orders" in log.topics()
    with connected("wrong") as log, pytest.raises(AuthenticationFailed, match='the user "ana"'):
        log.topics()


def test_an_external_log_shows_its_certificate(service: Service, folder: Path) -> None:
    both = folder / "carl-both.pem"
    both.write_text((folder / "carl.pem").read_text() + (folder / "carl.key").read_text())
    properties = {
        "bootstrap.servers": str(service.kafka_address),
        "security.protocol": "SSL",
        "ssl.truststore.certificates": (folder / "ca.pem").read_text(),
        "ssl.keystore.location": str(both),
    }
    with ExternalLog(ExternalLogSettings.of(properties, "ms_")) as log:
        assert {"orders"} <= set(log.topics()) <= {"orders", "orders-new"}
    chain = {
        **{name: value for name, value in properties.items() if name != "ssl.keystore.location"},
        "ssl.keystore.certificate.chain": (folder / "carl.pem").read_text(),
        "ssl.keystore.key": (folder / "carl.key").read_text(),
    }
    with ExternalLog(ExternalLogSettings.of(chain, "ms_")) as log:
        assert {"orders"} <= set(log.topics()) <= {"orders", "orders-new"}
