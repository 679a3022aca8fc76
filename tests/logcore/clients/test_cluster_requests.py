"""What administrators ask of a cluster: who decides, who may send how much, and passwords for SCRAM."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from waiting import eventually

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire.apis import Api

from .asking import Asking
from .driver import TIMEOUT_S
from .outside import commit_offset, unique

_SHA_256, _SHA_512 = 1, 2


def quorum(asking: Asking, topic: str = "__cluster_metadata") -> Any:
    topics = [{"topic_name": topic, "partitions": [{"partition_index": 0}]}]
    answer = asking.ask(Api.DESCRIBE_QUORUM, {"topics": topics})
    assert answer.error_code is ErrorCode.none
    return answer.topics[0].partitions[0]


def test_the_one_node_leads_the_metadata_and_votes(asking: Asking) -> None:
    found = quorum(asking)
    assert (found.error_code, found.leader_id) == (ErrorCode.none, asking.node)
    assert [member.replica_id for member in found.current_voters] == [asking.node]
    assert (found.current_voters[0].log_end_offset >= found.high_watermark >= 0, found.observers) == (True, ())


# Partitions that are added


def add_partitions(asking: Asking, topic: str, count: int, *replicas: list[int], only_check: bool = False) -> Any:
    placed = [{"broker_ids": each} for each in replicas]
    asked = {"topics": [{"name": topic, "count": count, "assignments": placed or None}], "validate_only": only_check}
    return asking.ask(Api.CREATE_PARTITIONS, {**asked, "timeout": timedelta(seconds=TIMEOUT_S)}).results[0].error_code


def partitions(asking: Asking, topic: str) -> int:
    return len(asking.ask(Api.METADATA, {"topics": [{"name": topic}]}).topics[0].partitions)


def test_partitions_are_added_where_the_client_places_them(asking: Asking) -> None:
    topic = asking.create_topic()
    assert add_partitions(asking, topic, 3, [asking.node], [asking.node]) is ErrorCode.none
    eventually(lambda: partitions(asking, topic) == 3)


def test_partitions_that_cannot_be_placed_as_asked_are_refused(asking: Asking) -> None:
    """On brokers that there are not, not as many as there are new ones, or with more replicas than the others."""
    topic, here, nowhere = asking.create_topic(), asking.node, asking.node + 7
    wrong: list[list[list[int]]] = [[[nowhere]], [[here], [here]], [[here, nowhere]], [[here, here]], [[]]]
    for replicas in wrong:
        for only_check in (True, False):
            code = add_partitions(asking, topic, 2, *replicas, only_check=only_check)
            assert code is ErrorCode.invalid_replica_assignment, (replicas, only_check)
    assert partitions(asking, topic) == 1


# Quotas


def set_quota(asking: Asking, entity: dict[str, str | None], *, only_check: bool = False, **rates: float | None) -> Any:
    ops = [{"key": key, "value": rate or 0.0, "remove": rate is None} for key, rate in rates.items()]
    parts = [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in entity.items()]
    asked = {"entries": [{"entity": parts, "ops": ops}], "validate_only": only_check}
    (answer,) = asking.ask(Api.ALTER_CLIENT_QUOTAS, asked).entries
    return answer.error_code


def quotas(
    asking: Asking, *components: tuple[str, int, str | None], strict: bool = True
) -> dict[str, dict[str, float]]:
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = asking.ask(Api.DESCRIBE_CLIENT_QUOTAS, {"components": asked, "strict": strict})
    assert answer.error_code is ErrorCode.none
    return {
        "/".join(str(part.entity_name) for part in sorted(entry.entity, key=lambda part: part.entity_type)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }


def test_a_quota_is_set_described_and_taken_back(asking: Asking) -> None:
    client = unique("client")
    exactly = ("client-id", 0, client)
    assert set_quota(asking, {"client_id": client}, only_check=True, producer_byte_rate=1e6) is ErrorCode.none
    assert quotas(asking, exactly) == {}
    assert set_quota(asking, {"client_id": client}, producer_byte_rate=1e6, consumer_byte_rate=2e6) is ErrorCode.none
    eventually(lambda: quotas(asking, exactly) == {client: {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}})
    assert set_quota(asking, {"client_id": client}, producer_byte_rate=None) is ErrorCode.none
    eventually(lambda: quotas(asking, exactly) == {client: {"consumer_byte_rate": 2e6}})
    assert client in quotas(asking, ("client-id", 2, None))
    assert set_quota(asking, {"client_id": client}, consumer_byte_rate=None) is ErrorCode.none
    eventually(lambda: quotas(asking, exactly) == {})


def test_a_quota_of_a_user_and_a_client_is_one_of_both(asking: Asking) -> None:
    user, client = unique("user"), unique("client")
    assert set_quota(asking, {"user": user, "client_id": client}, producer_byte_rate=5e5) is ErrorCode.none
    eventually(
        lambda: (
            quotas(asking, ("user", 0, user), ("client-id", 0, client))
            == {f"{client}/{user}": {"producer_byte_rate": 5e5}}
        )
    )
    assert quotas(asking, ("user", 0, user)) == {}
    assert list(quotas(asking, ("user", 0, user), strict=False)) == [f"{client}/{user}"]
    assert set_quota(asking, {"user": user, "client_id": client}, producer_byte_rate=None) is ErrorCode.none


@pytest.mark.parametrize("rates", [{"no_such_rate": 1.0}, {"producer_byte_rate": -1.0}])
def test_a_quota_that_makes_no_sense_is_refused(asking: Asking, rates: dict[str, float]) -> None:
    assert set_quota(asking, {"client_id": unique("client")}, only_check=False, **rates) is ErrorCode.invalid_request


# Passwords for SCRAM


def alter(asking: Asking, *, delete: list[Any] = [], put: list[Any] = []) -> dict[str, ErrorCode]:  # noqa: B006
    results = asking.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": delete, "upsertions": put}).results
    return {result.user: result.error_code for result in results}


def password(name: str, mechanism: int = _SHA_256, iterations: int = 4096) -> dict[str, Any]:
    digest = "sha256" if mechanism == _SHA_256 else "sha512"
    salted = hashlib.pbkdf2_hmac(digest, b"sesame", b"salt", iterations)
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"salt", "salted_password": salted}


def described(asking: Asking, *names: str) -> dict[str, Any]:
    asked = [{"name": name} for name in names]
    results = asking.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": asked or None}).results
    return {
        result.user: {info.mechanism: info.iterations for info in result.credential_infos} or result.error_code
        for result in results
    }


def test_passwords_are_set_described_and_removed(asking: Asking) -> None:
    user = unique("user")
    assert described(asking, user) == {user: ErrorCode.resource_not_found}
    assert alter(asking, put=[password(user)]) == {user: ErrorCode.none}
    assert alter(asking, put=[password(user, _SHA_512, 8192)]) == {user: ErrorCode.none}
    eventually(lambda: described(asking, user) == {user: {_SHA_256: 4096, _SHA_512: 8192}})
    assert user in described(asking)
    assert alter(asking, delete=[{"name": user, "mechanism": _SHA_512}]) == {user: ErrorCode.none}
    eventually(lambda: described(asking, user) == {user: {_SHA_256: 4096}})
    assert alter(asking, delete=[{"name": user, "mechanism": _SHA_512}]) == {user: ErrorCode.resource_not_found}
    assert alter(asking, delete=[{"name": user, "mechanism": _SHA_256}]) == {user: ErrorCode.none}


def test_passwords_that_cannot_be_kept_are_refused(asking: Asking) -> None:
    weak, twice, odd = unique("weak"), unique("twice"), unique("odd")
    put = [password(weak, iterations=100), password(twice), password(twice), {**password(odd), "mechanism": 9}]
    assert alter(asking, put=put) == {
        weak: ErrorCode.unacceptable_credential,
        twice: ErrorCode.duplicate_resource,
        odd: ErrorCode.unsupported_sasl_mechanism,
    }
    assert alter(asking, put=[password("")]) == {"": ErrorCode.unacceptable_credential}


# Groups whose coordinator assigns


def group_type(asking: Asking, group: str) -> tuple[str, str] | None:
    found = {each.group_id: each for each in asking.ask(Api.LIST_GROUPS, {}).groups}.get(group)
    return None if found is None else (found.group_type.lower(), found.group_state)


def test_a_group_that_the_coordinator_assigns_stays_of_its_kind_when_it_is_empty(asking: Asking) -> None:
    group, topic = unique("g"), asking.create_topic()
    asking.produce(topic, b"a")
    joined = asking.beat(group, "m", 0, topic)
    assert joined.error_code is ErrorCode.none
    assert asking.beat(group, joined.member_id, -1).error_code is ErrorCode.none
    eventually(lambda: group_type(asking, group) == ("consumer", "Empty"))
    (found,) = asking.ask(Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]}).groups
    assert (found.error_code, found.group_state, found.members) == (ErrorCode.none, "Empty", ())
    deleted = asking.ask(Api.DELETE_GROUPS, {"groups_names": [group]}).results
    assert [result.error_code for result in deleted] == [ErrorCode.none]
    eventually(lambda: group_type(asking, group) is None)


def why_not_described(asking: Asking, group: str) -> str | None:
    described = asking.once_ready(lambda: asking.ask(Api.CONSUMER_GROUP_DESCRIBE, {"group_ids": [group]}).groups[0])
    assert described.error_code is ErrorCode.group_id_not_found
    return described.error_message


def test_a_group_whose_coordinator_does_not_assign_is_described_by_another_request(asking: Asking) -> None:
    group, topic = unique("g"), asking.create_topic()
    assert why_not_described(asking, group) == f"Group {group} not found."
    commit_offset(asking.address, group, topic, 0)
    assert why_not_described(asking, group) == f"Group {group} is not a consumer group."
