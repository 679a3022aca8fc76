"""Consumer instances of the REST proxy's v2, as its clients use them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from rest_proxy import ProxyClient, base64_of, refused
from running_server import eventually, service_in

from millstream.logcore.client import RowRecords
from millstream.server.security.access import hash_token
from millstream.server.service import Service

AVRO = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "string"]}]})
PROTO = 'syntax = "proto3"; message M { int64 a = 1; string long_name = 2; bool b = 3; }'


class Instance:
    """A consumer instance, as its client has it."""

    def __init__(self, proxy: ProxyClient, group: str, **settings: Any) -> None:
        made = proxy.post(f"/consumers/{group}", {"format": "json", "auto.offset.reset": "earliest", **settings})
        assert made.status_code == 200, made.text
        self.proxy = proxy
        self.path = made.json()["base_uri"].partition(str(proxy.http.base_url).rstrip("/"))[2]

    def subscribed(self, *topics: str) -> Instance:
        assert self.proxy.post(f"{self.path}/subscription", {"topics": topics}).status_code == 204
        return self

    def assigned(self, topic: str, *partitions: int) -> Instance:
        asked = [{"topic": topic, "partition": number} for number in partitions]
        assert self.proxy.post(f"{self.path}/assignments", {"partitions": asked}).status_code == 204
        return self

    def read(self, query: str = "timeout=1000") -> list[dict[str, Any]]:
        answer = self.proxy.get(f"{self.path}/records?{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def values(self, count: int) -> list[Any]:
        found: list[Any] = []

        def read() -> bool:
            found.extend(record["value"] for record in self.read())
            return len(found) >= count

        eventually(read)
        return found

    def partitions(self) -> set[int]:
        found = self.proxy.get(f"{self.path}/assignments").json()["partitions"]
        return {each["partition"] for each in found}

    def committed(self, topic: str, *partitions: int) -> list[tuple[int, int, str]]:
        asked = [{"topic": topic, "partition": number} for number in partitions]
        found = self.proxy.get(f"{self.path}/offsets", body={"partitions": asked}).json()["offsets"]
        return [(each["partition"], each["offset"], each["metadata"]) for each in found]

    def delete(self) -> None:
        assert self.proxy.delete(self.path).status_code == 204


@pytest.fixture
def instances(proxy: ProxyClient, topic: str) -> Iterator[Any]:
    """Makes instances of a group of the test's own, and deletes them."""
    made: list[Instance] = []

    def make(group: str = topic, **settings: Any) -> Instance:
        made.append(Instance(proxy, group, **settings))
        return made[-1]

    yield make
    for instance in made:
        proxy.delete(instance.path)


def produce(proxy: ProxyClient, topic: str, *values: Any, partition: int = 0) -> None:
    body = {"records": [{"value": value} for value in values]}
    assert proxy.produce(f"/topics/{topic}/partitions/{partition}", body).status_code == 200


def test_an_instance_lives_from_post_to_delete(proxy: ProxyClient, topic: str) -> None:
    made = proxy.post(f"/consumers/{topic}", {"name": "me", "format": "json", "auto.offset.reset": "earliest"})
    base = f"{str(proxy.http.base_url).rstrip('/')}/consumers/{topic}/instances/me"
    assert made.json() == {"instance_id": "me", "base_uri": base}
    assert refused(proxy.post(f"/consumers/{topic}", {"name": "me"})) == (409, 40902)
    path = f"/consumers/{topic}/instances/me"
    produce(proxy, topic, {"n": 1})
    assert proxy.post(f"{path}/subscription", {"topics": [topic]}).status_code == 204
    assert proxy.get(f"{path}/subscription").json() == {"topics": [topic]}
    answer = proxy.get(f"{path}/records?timeout=1000", accept="application/vnd.kafka.json.v2+json")
    assert answer.headers["content-type"] == "application/vnd.kafka.json.v2+json"
    assert answer.json() == [{"topic": topic, "key": None, "value": {"n": 1}, "partition": 0, "offset": 0}]
    assigned = [{"topic": topic, "partition": number} for number in (0, 1)]
    assert proxy.get(f"{path}/assignments").json() == {"partitions": assigned}
    assert proxy.delete(f"{path}/subscription").status_code == 204
    assert proxy.get(f"{path}/subscription").json() == {"topics": []}
    assert proxy.delete(path).status_code == 204
    assert refused(proxy.delete(path)) == (404, 40403)
    assert refused(proxy.get(f"{path}/records")) == (404, 40403)


def test_without_a_name_an_instance_gets_one_and_without_a_body_the_usual_settings(proxy: ProxyClient) -> None:
    made = proxy.post("/consumers/nameless").json()
    assert made["instance_id"].startswith("rest-consumer-")
    path = f"/consumers/nameless/instances/{made['instance_id']}"
    answer = proxy.get(f"{path}/records", accept="application/vnd.kafka.json.v2+json")
    assert refused(answer) == (406, 40601)
    assert proxy.delete(path).status_code == 204


@pytest.mark.parametrize(
    ("format", "body", "shown"),
    [
        ("binary", {"records": [{"key": base64_of(b"\xff"), "value": "AA=="}]}, [("/w==", "AA==")]),
        (
            "json",
            {"records": [{"key": "k", "value": {"a": [1, None]}}, {"key": 1}]},
            [("k", {"a": [1, None]}), (1, None)],
        ),
        (
            "avro",
            {"value_schema": AVRO, "records": [{"value": {"a": {"string": "x"}}}, {"value": {"a": None}}]},
            [(None, {"a": {"string": "x"}}), (None, {"a": None})],
        ),
        (
            "protobuf",
            {"value_schema": PROTO, "records": [{"value": {"a": 7, "long_name": "x"}}]},
            [(None, {"a": "7", "longName": "x", "b": False})],
        ),
        ("jsonschema", {"key_schema": '{"type": "string"}', "records": [{"key": "k"}]}, [("k", None)]),
    ],
)  # fmt: skip
def test_records_come_back_as_they_were_produced(
    proxy: ProxyClient, topic: str, instances: Any, format: str, body: Any, shown: Any
) -> None:
    instance = instances(format=format).assigned(topic, 0)
    assert proxy.produce(f"/topics/{topic}/partitions/0", body, format).status_code == 200
    assert [(record["key"], record["value"]) for record in instance.read()] == shown


def test_columns_are_read_as_rows(service: Service, proxy: ProxyClient) -> None:
    proxy.ksql(
        "CREATE STREAM columns (id INT KEY, v STRING) WITH "
        "(kafka_topic='columns', value_format='ARROW', key_format='JSON', partitions=1);"
        "INSERT INTO columns VALUES (1, 'a'); INSERT INTO columns VALUES (2, 'b');"
    )
    instance = Instance(proxy, "columns").assigned("columns", 0)
    found = [*instance.read(), *instance.read()]
    assert [(record["key"], record["value"], record["offset"]) for record in found] == [
        (1, {"V": "a"}, 0), (2, {"V": "b"}, 1),
    ]  # fmt: skip
    instance.delete()


def test_two_members_share_the_partitions_and_one_takes_over(
    proxy: ProxyClient, service: Service, instances: Any
) -> None:
    service.engine.log.create_topic("shared-out", 6)
    first = instances("shared").subscribed("shared-out")
    eventually(lambda: not first.read("timeout=50") and first.partitions() == set(range(6)))
    second = instances("shared").subscribed("shared-out")

    def are_shared_out() -> bool:
        both = [(instance.read("timeout=50"), instance.partitions())[1] for instance in (first, second)]
        return all(len(part) == 3 for part in both) and both[0] | both[1] == set(range(6))

    eventually(are_shared_out)
    for number in range(6):
        produce(proxy, "shared-out", number, partition=number)
    for instance in (first, second):
        assert sorted(instance.values(3)) == sorted(instance.partitions())
    second.delete()
    eventually(lambda: not first.read("timeout=50") and first.partitions() == set(range(6)))


def test_an_offset_is_that_of_the_last_record_handled(proxy: ProxyClient, topic: str, instances: Any) -> None:
    produce(proxy, topic, 1, 2, 3)
    first = instances(**{"auto.commit.enable": "false"}).assigned(topic, 0)
    assert first.values(3) == [1, 2, 3]
    assert first.committed(topic, 0, 1) == []
    offsets = {"offsets": [{"topic": topic, "partition": 0, "offset": 0, "metadata": "seen"}]}
    assert proxy.post(f"{first.path}/offsets", offsets).json() == []
    assert first.committed(topic, 0, 1) == [(0, 1, "seen")]
    first.delete()
    second = instances(**{"auto.commit.enable": False}).assigned(topic, 0)
    assert second.values(2) == [2, 3]
    assert proxy.post(f"{second.path}/offsets").status_code == 200
    assert second.committed(topic, 0) == [(0, 3, "")]


@pytest.mark.parametrize(("auto", "left"), [("true", []), ("false", [1, 2])])
def test_an_instance_that_commits_by_itself_does_so_at_its_end(
    proxy: ProxyClient, topic: str, instances: Any, auto: str, left: list[int]
) -> None:
    produce(proxy, topic, 1, 2)
    first = instances(**{"auto.commit.enable": auto}).assigned(topic, 0)
    assert first.values(2) == [1, 2]
    first.delete()
    assert [record["value"] for record in instances().assigned(topic, 0).read("timeout=100")] == left


def test_positions_are_moved(proxy: ProxyClient, topic: str, instances: Any) -> None:
    instance = instances().assigned(topic, 0)
    produce(proxy, topic, 1, 2, 3)
    assert instance.values(3) == [1, 2, 3]
    place = {"topic": topic, "partition": 0}

    def move(where: str, body: Any) -> None:
        assert proxy.post(f"{instance.path}/positions{where}", body).status_code == 204

    move("", {"offsets": [{**place, "offset": 1}]})
    assert instance.values(2) == [2, 3]
    move("/beginning", {"partitions": [place]})
    assert instance.values(3) == [1, 2, 3]
    move("/beginning", {"partitions": [place]})
    move("/end", {"partitions": [place]})
    assert instance.read("timeout=50") == []
    move("", {"timestamps": [{**place, "timestamp": "1970-01-01T00:00:00Z"}]})
    assert instance.values(3) == [1, 2, 3]
    move("", {"timestamps": [{**place, "timestamp": "2999-01-01T00:00:00Z"}]})
    assert instance.read("timeout=50") == []
    answer = proxy.post(f"{instance.path}/positions", {"offsets": [{**place, "partition": 1, "offset": 0}]})
    assert refused(answer) == (409, 40903)


def test_the_latest_offset_is_the_default_and_none_is_an_error(proxy: ProxyClient, topic: str, instances: Any) -> None:
    produce(proxy, topic, 1)
    latest = instances(**{"auto.offset.reset": "latest"}).assigned(topic, 0)
    produce(proxy, topic, 2)
    assert latest.values(1) == [2]
    none = instances("none-yet", **{"auto.offset.reset": "none"})
    answer = proxy.post(f"{none.path}/assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    assert refused(answer) == (500, 50002)


def test_an_offset_behind_the_end_is_reset_where_it_is_read(proxy: ProxyClient, topic: str, instances: Any) -> None:
    produce(proxy, topic, 1)
    instance = instances().assigned(topic, 0)
    most = {"topic": topic, "partition": 0, "offset": 2**63 - 2}
    assert proxy.post(f"{instance.path}/positions", {"offsets": [most]}).status_code == 204
    assert instance.values(1) == [1]
    assert refused(proxy.post(f"{instance.path}/offsets", {"offsets": [{**most, "offset": 2**63 - 1}]})) == (422, 422)


def test_a_response_has_no_more_bytes_than_asked_and_no_record_is_lost(
    proxy: ProxyClient, topic: str, instances: Any
) -> None:
    produce(proxy, topic, *("x" * 500 for _ in range(10)))
    produce(proxy, topic, *("y" * 500 for _ in range(10)), partition=1)
    instance = instances().assigned(topic, 0, 1)
    found = [instance.read("max_bytes=1500") for _ in range(10)]
    assert [len(records) for records in found] == [2] * 10
    places = sorted((record["partition"], record["offset"]) for records in found for record in records)
    assert places == [(partition, offset) for partition in (0, 1) for offset in range(10)]
    assert instance.read("timeout=50") == []


def test_a_record_larger_than_asked_comes_alone(proxy: ProxyClient, topic: str, instances: Any) -> None:
    produce(proxy, topic, "x" * 5000, 2)
    instance = instances().assigned(topic, 0)
    assert [len(instance.read("max_bytes=10")), len(instance.read("max_bytes=10"))] == [1, 1]


def test_a_read_waits_for_as_many_bytes_as_the_instance_wants(proxy: ProxyClient, topic: str, instances: Any) -> None:
    instance = instances(**{"fetch.min.bytes": 1000, "consumer.request.timeout.ms": 20_000}).assigned(topic, 0)
    produce(proxy, topic, "x" * 300)
    more = threading.Thread(target=produce, args=(proxy, topic, "y" * 900))
    more.start()
    assert len(instance.read("timeout=20000")) == 2
    more.join()


def test_a_record_that_the_format_cannot_show_is_named_and_passed_by_seeking(
    proxy: ProxyClient, topic: str, instances: Any
) -> None:
    produce(proxy, topic, 1)
    assert proxy.produce(f"/topics/{topic}/partitions/0", {"records": [{"value": "/w=="}]}, "binary").status_code == 200
    produce(proxy, topic, 3)
    instance = instances().assigned(topic, 0)
    assert instance.values(1) == [1]
    for _ in range(2):
        answer = proxy.get(f"{instance.path}/records?timeout=100")
        assert refused(answer) == (408, 40801)
        assert f"record 1 of partition 0 of topic {topic}" in answer.json()["message"]
    after = {"offsets": [{"topic": topic, "partition": 0, "offset": 2}]}
    assert proxy.post(f"{instance.path}/positions", after).status_code == 204
    assert instance.values(1) == [3]


@pytest.mark.parametrize(("isolation", "seen"), [("read_committed", [1, 3]), ("read_uncommitted", [1, 2, 3])])
def test_records_of_an_aborted_transaction_are_seen_by_who_wants_them(
    service: Service, proxy: ProxyClient, topic: str, instances: Any, isolation: str, seen: list[int]
) -> None:
    produce(proxy, topic, 1)
    producer = service.engine.log.transactional_producer(f"tx-{isolation}")
    producer.begin()
    table = pa.table({"timestamp": [1], "key": pa.nulls(1, pa.binary()), "value": pa.array([b"2"], pa.binary())})
    producer.append(topic, 0, RowRecords(table))
    producer.abort()
    produce(proxy, topic, 3)
    assert instances(**{"isolation.level": isolation}).assigned(topic, 0).values(len(seen)) == seen


def test_topics_that_fit_a_pattern_are_read(service: Service, proxy: ProxyClient, topic: str, instances: Any) -> None:
    for name in ("fits-1", "fits-2", "unfit"):
        service.engine.log.create_topic(name, 1)
        produce(proxy, name, name)
    instance = instances()
    assert proxy.post(f"{instance.path}/subscription", {"topic_pattern": "fits-.*"}).status_code == 204
    assert proxy.get(f"{instance.path}/subscription").json() == {"topics": ["fits-1", "fits-2"]}
    assert sorted(instance.values(2)) == ["fits-1", "fits-2"]
    for pattern in ("(", "a{1000}{1000}"):
        answer = proxy.post(f"{instance.path}/subscription", {"topic_pattern": pattern})
        assert refused(answer) == (422, 422), pattern


def test_subscribing_and_assigning_exclude_each_other(proxy: ProxyClient, topic: str, instances: Any) -> None:
    assign, subscribe = {"partitions": [{"topic": topic, "partition": 0}]}, {"topics": [topic]}
    instance = instances().subscribed(topic)
    assert refused(proxy.post(f"{instance.path}/assignments", assign)) == (409, 40903)
    assert proxy.delete(f"{instance.path}/subscription").status_code == 204
    assert refused(proxy.get(f"{instance.path}/records")) == (409, 40903)
    assert proxy.post(f"{instance.path}/assignments", assign).status_code == 204
    assert refused(proxy.post(f"{instance.path}/subscription", subscribe)) == (409, 40903)


def test_an_instance_is_used_by_one_request_at_a_time(proxy: ProxyClient, topic: str, instances: Any) -> None:
    instance = instances(**{"consumer.request.timeout.ms": 20_000}).assigned(topic, 0)
    found: list[Any] = []
    reading = threading.Thread(target=lambda: found.extend(instance.values(1)))
    reading.start()
    eventually(lambda: proxy.get(f"{instance.path}/assignments").status_code == 409)
    assert refused(proxy.get(f"{instance.path}/records")) == (409, 40903)
    produce(proxy, topic, 1)
    reading.join()
    assert found == [1]


def test_deleting_an_instance_ends_its_read(proxy: ProxyClient, topic: str, instances: Any) -> None:
    instance = instances(**{"consumer.request.timeout.ms": 30_000}).assigned(topic, 0)
    found: list[Any] = []
    reading = threading.Thread(target=lambda: found.append(instance.read("timeout=30000")))
    reading.start()
    eventually(lambda: proxy.get(f"{instance.path}/assignments").status_code == 409)
    instance.delete()
    reading.join(timeout=10)
    assert (reading.is_alive(), found) == (False, [[]])


def test_a_client_that_goes_away_during_a_read_loses_nothing(
    service: Service, proxy: ProxyClient, topic: str, instances: Any
) -> None:
    instance = instances(**{"consumer.request.timeout.ms": 20_000}).assigned(topic, 0)
    with socket.create_connection((service.http_address.host, service.http_address.port)) as gone:
        gone.sendall(f"GET {instance.path}/records?timeout=20000 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        eventually(lambda: proxy.get(f"{instance.path}/assignments").status_code == 409)
    produce(proxy, topic, 1)
    eventually(lambda: proxy.get(f"{instance.path}/assignments").status_code == 200)
    assert instance.values(1) == [1]


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"format": "xml"}, (422, 422)),
        ({"format": 5}, (400, 400)),
        ({"format": "string"}, (422, 422)),
        ({"auto.offset.reset": "middle"}, (422, 42204)),
        ({"auto.commit.enable": "perhaps"}, (400, 400)),
        ({"isolation.level": "none"}, (422, 42204)),
        ({"fetch.min.bytes": 10_000_001}, (422, 422)),
        ({"fetch.min.bytes": -2}, (422, 422)),
        ({"consumer.request.timeout.ms": -1}, (422, 422)),
        ({"name": "a/b"}, (422, 422)),
        ({"name": "x" * 256}, (422, 422)),
        ({"name": "a\x00"}, (422, 422)),
        ({"nope": 1}, (422, 422)),
        ([], (400, 400)),
        ("{", (400, 400)),
    ],
)
def test_settings_that_there_are_not_are_refused(proxy: ProxyClient, body: Any, answer: tuple[int, int]) -> None:
    assert refused(proxy.post("/consumers/bad", body)) == answer


@pytest.mark.parametrize(
    ("path", "body", "answer"),
    [
        ("subscription", {}, (422, 422)),
        ("subscription", {"topics": []}, (422, 422)),
        ("subscription", {"topics": "t"}, (400, 400)),
        ("subscription", {"topics": [5]}, (400, 400)),
        ("subscription", {"topics": ["t"] * 1001}, (422, 422)),
        ("subscription", "", (422, 42206)),
        ("assignments", {}, (422, 422)),
        ("assignments", {"partitions": [{}]}, (422, 422)),
        ("assignments", {"partitions": [{"topic": "nope", "partition": 0}]}, (404, 40401)),
        ("assignments", {"partitions": [{"topic": "TOPIC", "partition": 2}]}, (404, 40402)),
        ("assignments", {"partitions": [{"topic": "TOPIC", "partition": 1.5}]}, (400, 400)),
        ("offsets", {"offsets": [{"topic": "TOPIC", "partition": 0}]}, (422, 422)),
        ("offsets", {"offsets": [{"topic": "TOPIC", "partition": 5, "offset": 1}]}, (404, 40402)),
        ("offsets", {"offsets": [{"topic": "nope", "partition": 0, "offset": 1}]}, (404, 40401)),
        ("offsets", {"offsets": 5}, (400, 400)),
        ("positions", {"offsets": [{"topic": "TOPIC", "partition": 0, "offset": -1}]}, (422, 422)),
        ("positions", {"timestamps": [{"topic": "TOPIC", "partition": 0, "timestamp": "now"}]}, (400, 400)),
        ("positions/beginning", {"partitions": [{"topic": "TOPIC", "partition": 0}]}, (409, 40903)),
        ("positions/end", {"partitions": [{"topic": "TOPIC", "partition": "x"}]}, (400, 400)),
    ],
)
def test_bodies_that_make_no_sense_are_refused(
    proxy: ProxyClient, topic: str, instances: Any, path: str, body: Any, answer: tuple[int, int]
) -> None:
    text = body if isinstance(body, str) else json.dumps(body).replace("TOPIC", topic)
    assert refused(proxy.post(f"{instances().path}/{path}", text)) == answer


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "records"), ("GET", "assignments"), ("GET", "subscription"), ("DELETE", "subscription"), ("DELETE", ""),
        ("POST", "offsets"), ("GET", "offsets"),
    ],
)  # fmt: skip
def test_an_instance_that_there_is_not_is_not_found(proxy: ProxyClient, method: str, path: str) -> None:
    answer = proxy.http.request(method, f"/consumers/g/instances/nope/{path}".rstrip("/"))
    assert refused(answer) == (404, 40403)


def test_numbers_of_the_query_are_looked_at(proxy: ProxyClient, topic: str, instances: Any) -> None:
    instance = instances().assigned(topic, 0)
    for query in ("timeout=x", "max_bytes=1.5", "timeout=99999999999999999999999"):
        assert proxy.get(f"{instance.path}/records?{query}").status_code in (400, 422), query
    assert instance.read("timeout=1&max_bytes=-1") == []


def test_there_are_only_so_many_instances(proxy: ProxyClient, instances: Any) -> None:
    made = [instances("many") for _ in range(20)]
    refusal = proxy.post("/consumers/many")
    assert (refusal.status_code, refusal.headers["retry-after"]) == (429, "1")
    made[0].delete()
    instances("many")


def test_groups_of_queries_are_not_for_clients(service: Service, proxy: ProxyClient) -> None:
    proxy.ksql(
        "CREATE STREAM s (v INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);"
        "CREATE STREAM q AS SELECT * FROM s;"
    )
    (query,) = service.engine.catalog.queries
    for group in (query, f"{query}-0", "_millstream-command-applied"):
        assert refused(proxy.post(f"/consumers/{group}")) == (403, 40301), group


def test_rights_are_those_of_the_kafka_port(tmp_path_factory: pytest.TempPathFactory) -> None:
    roles = {
        "all": {"read": ["own*"], "group": ["own*"], "insert": ["own*"]},
        "same": {"read": ["own*"], "group": ["own*"]},
        "reader": {"read": ["own*"]},
        "grouped": {"group": ["own*"]},
    }
    users = {name: {"tokens": [hash_token(name)], "roles": [name]} for name in roles}
    with service_in(tmp_path_factory.mktemp("access"), access={"users": users, "roles": roles}) as service:
        for name in ("own", "own-2", "other"):
            service.engine.log.create_topic(name, 1)
        with ProxyClient(service, "all") as owner:
            instance = Instance(owner, "own", name="me").subscribed("own")
            assert refused(owner.post("/consumers/other")) == (403, 40301)
            assert refused(owner.post(f"{instance.path}/subscription", {"topics": ["other"]})) == (403, 40301)
            place = {"topic": "other", "partition": 0, "offset": 0}
            for path, body in (("assignments", {"partitions": [place]}), ("offsets", {"offsets": [place]})):
                assert refused(owner.post(f"{instance.path}/{path}", body)) == (403, 40301), path
            assert refused(owner.get(f"{instance.path}/offsets", body={"partitions": [place]})) == (403, 40301)
            assert owner.post(f"{instance.path}/subscription", {"topic_pattern": ".*"}).status_code == 204
            assert owner.get(f"{instance.path}/subscription").json() == {"topics": ["own", "own-2"]}
            for user, status in (("same", 404), ("grouped", 404), ("reader", 403)):
                with ProxyClient(service, user) as stranger:
                    assert stranger.get(f"{instance.path}/records").status_code == status, user
                    assert stranger.delete(instance.path).status_code == status, user
            instance.delete()
        with ProxyClient(service, "grouped") as grouped:
            instance = Instance(grouped, "own")
            assert refused(grouped.post(f"{instance.path}/subscription", {"topics": ["own"]})) == (403, 40301)
