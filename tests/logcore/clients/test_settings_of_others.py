"""What can be set on brokers and groups, over the protocol."""

from __future__ import annotations

import pytest
from waiting import eventually

from millstream.logcore.error_codes import ErrorCode
from millstream.logcore.protocol.wire.apis import Api

from .asking import BROKER, GROUP, Asking
from .outside import unique

_RATE = "leader.replication.throttled.rate"


def test_a_broker_takes_a_rate_that_holds_before_the_one_of_all_brokers(asking: Asking) -> None:
    node = str(asking.node)
    assert asking.change(BROKER, "", {_RATE: "2000"}).error_code is ErrorCode.none
    assert asking.change(BROKER, node, {_RATE: "1000"}).error_code is ErrorCode.none
    eventually(lambda: _rate_of(asking, node) == "1000")
    mine = asking.settings(BROKER, node, synonyms=True)[_RATE]
    assert mine.config_source == 2
    assert [(each.value, each.source) for each in mine.synonyms] == [("1000", 2), ("2000", 3)]
    eventually(lambda: _rate_of(asking, "") == "2000")
    assert asking.change(BROKER, node, {_RATE: None}).error_code is ErrorCode.none
    eventually(lambda: _rate_of(asking, node) == "2000")
    assert asking.change(BROKER, "", {_RATE: None, "follower.replication.throttled.rate": None}).error_code == 0
    eventually(lambda: _rate_of(asking, node) is None)


def _rate_of(asking: Asking, node: str) -> str | None:
    """None where it is not set, or the broker does not know it yet."""
    found = asking.settings(BROKER, node).get(_RATE)
    return None if found is None else found.value


def test_what_only_the_configuration_can_change_says_so(asking: Asking) -> None:
    found = asking.settings(BROKER, str(asking.node), synonyms=True)["num.partitions"]
    assert (found.value, found.read_only, found.config_source) == ("1", True, 5)


def test_a_broker_that_is_not_there_has_no_settings(asking: Asking) -> None:
    assert asking.change(BROKER, "77", {_RATE: "1"}).error_code is ErrorCode.invalid_request
    with pytest.raises(AssertionError, match="invalid_request"):
        asking.settings(BROKER, "77")


def test_a_group_has_settings_before_it_has_members(asking: Asking) -> None:
    group, name = unique("g"), "consumer.session.timeout.ms"
    usual = asking.settings(GROUP, group, synonyms=True)[name]
    assert [(each.name, each.value, each.source) for each in usual.synonyms] == [(f"group.{name}", usual.value, 5)]
    assert asking.change(GROUP, group, {name: "50000"}).error_code is ErrorCode.none
    eventually(lambda: asking.settings(GROUP, group)[name].value == "50000")
    assert asking.settings(GROUP, group)[name].config_source == 8
    listed = asking.ask(Api.LIST_CONFIG_RESOURCES, {"resource_types": [GROUP]}).config_resources
    assert (group, GROUP) in {(found.resource_name, found.resource_type) for found in listed}
    assert asking.change(GROUP, group, {name: None}).error_code is ErrorCode.none
    eventually(lambda: asking.settings(GROUP, group)[name].value == usual.value)


@pytest.mark.parametrize("changes", [{"no.such.setting": "1"}, {"consumer.session.timeout.ms": "1"}])
def test_a_group_is_not_given_what_it_cannot_have(asking: Asking, changes: dict[str, str]) -> None:
    assert asking.change(GROUP, unique("g"), changes).error_code is ErrorCode.invalid_config


def test_a_member_is_told_the_heartbeat_of_its_group(asking: Asking) -> None:
    group, topic = unique("g"), asking.create_topic()
    assert asking.change(GROUP, group, {"consumer.heartbeat.interval.ms": "5000"}).error_code is ErrorCode.none
    eventually(lambda: asking.settings(GROUP, group)["consumer.heartbeat.interval.ms"].value == "5000")
    joined = asking.beat(group, "member", 0, topic)
    assert (joined.error_code, round(joined.heartbeat_interval.total_seconds() * 1000)) == (ErrorCode.none, 5000)
