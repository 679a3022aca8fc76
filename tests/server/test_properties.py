"""Properties: names, aliases and values."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidProperty
from millstream.server.config.properties import (
    PROPERTIES,
    checked_properties,
    find_property,
    lenient_properties,
    settable_property,
)


def test_a_kafka_name_and_its_ksql_streams_form_are_one_property() -> None:
    assert find_property("ksql.streams.auto.offset.reset") is find_property("auto.offset.reset")
    assert find_property("cache.max.bytes.buffering").name == "ksql.streams.cache.max.bytes.buffering"


def test_values_are_checked_and_spelled_one_way() -> None:
    assert checked_properties({"ksql.streams.auto.offset.reset": "EARLIEST"}) == {"auto.offset.reset": "earliest"}
    assert checked_properties({"ksql.suppress.enabled": True}) == {"ksql.suppress.enabled": "true"}
    with pytest.raises(InvalidProperty, match="expected earliest, latest, a time") as caught:
        checked_properties({"auto.offset.reset": "earlyest"})
    assert caught.value.hint == 'Did you mean "earliest"?'
    with pytest.raises(InvalidProperty, match="a whole number"):
        checked_properties({"ksql.streams.cache.max.bytes.buffering": "much"})
    with pytest.raises(InvalidProperty, match="at least 0"):
        checked_properties({"ksql.streams.cache.max.bytes.buffering": -1})


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidProperty) as caught:
        find_property("auto.ofset.reset")
    assert caught.value.hint == 'Did you mean "auto.offset.reset"?'
    assert lenient_properties({"no.such.thing": False}) == {"no.such.thing": "false"}


def test_a_property_of_the_server_cannot_be_set_by_a_session() -> None:
    with pytest.raises(InvalidProperty, match="belongs to the server"):
        settable_property("listeners")


def test_every_default_is_a_valid_value_and_every_entry_is_documented() -> None:
    for entry in PROPERTIES.values():
        assert entry.doc.endswith("."), entry.name
        if entry.default:
            assert entry.check(entry.default) == entry.default, entry.name
