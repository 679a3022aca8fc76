"""Properties: names, aliases and values."""

from __future__ import annotations

import re

import pytest

from millstream.errors import InvalidProperty
from millstream.server.config.properties import (
    checked_properties,
    find_property,
    lenient_properties,
    settable_property,
)
from millstream.sql.settings.property import says_true
from millstream.sql.settings.property_table import (
    CACHE_BYTES,
    COMMAND_TIMEOUT_MS,
    DUCKDB_THREADS,
    EXECUTOR,
    OFFSET_RESET,
    PROPERTIES,
    PYTHON_FUNCTIONS,
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


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ksql.queries.file", "millstream sql --server URL -f FILE"),
        ("ksql.logging.processing.topic.name", "default_ksql_processing_log"),
        ("authentication.skip.paths", r"below \[access\]"),
        ("ksql.connect.worker.config", "ksql.connect.url"),
    ],
)
def test_a_property_of_ksqldbs_that_would_be_missed_is_refused_with_where_to_look(name: str, hint: str) -> None:
    with pytest.raises(InvalidProperty, match=f"ksqlDB's property '{name}' does not exist here") as caught:
        find_property(name)
    assert re.search(hint, caught.value.hint or "")


def test_the_groups_of_such_properties_end_at_a_point() -> None:
    for name in ("authentication", "ksql.hidden.topics.more", "ksql.migrationsx.a"):
        with pytest.raises(InvalidProperty, match="Not recognizable"):
            find_property(name)


@pytest.mark.parametrize(
    "name", ["ksql.heartbeat.window.ms", "ksql.plugins.rocksdb.cache.size", "ksql.streams.task.timeout.ms"]
)
def test_a_property_about_what_is_not_here_is_accepted(name: str) -> None:
    assert not settable_property(name).effective


def test_a_property_of_the_server_cannot_be_set_by_a_session() -> None:
    with pytest.raises(InvalidProperty, match="is a server property"):
        settable_property("listeners")


def test_every_default_is_a_valid_value_and_every_entry_is_documented() -> None:
    for entry in PROPERTIES.values():
        assert entry.doc.endswith("."), entry.name
        if entry.default:
            assert entry.check(entry.default) == entry.default, entry.name


def test_a_property_reads_its_value_its_alias_or_its_default() -> None:
    assert (CACHE_BYTES.of({}), CACHE_BYTES.usual) == (10_485_760, 10_485_760)
    assert CACHE_BYTES.of({"cache.max.bytes.buffering": "0"}) == 0
    assert CACHE_BYTES.of({"cache.max.bytes.buffering": "0", "ksql.streams.cache.max.bytes.buffering": "7"}) == 7
    assert (PYTHON_FUNCTIONS.of({}), PYTHON_FUNCTIONS.of({PYTHON_FUNCTIONS.name: "TRUE"})) == (False, True)
    assert (DUCKDB_THREADS.of({}), DUCKDB_THREADS.of({DUCKDB_THREADS.name: "3"})) == (None, 3)
    assert EXECUTOR.of({EXECUTOR.name: "DuckDB"}) == "duckdb"


def test_who_asks_can_tell_a_default_from_a_value() -> None:
    assert (OFFSET_RESET.given({}), OFFSET_RESET.of({})) == (None, "latest")
    assert OFFSET_RESET.given({OFFSET_RESET.name: "0"}) == 0


def test_a_value_that_says_nothing_is_refused_where_it_is_read() -> None:
    with pytest.raises(InvalidProperty, match="Invalid value 'soon' for property"):
        COMMAND_TIMEOUT_MS.of({COMMAND_TIMEOUT_MS.name: "soon"})
    with pytest.raises(InvalidProperty, match="expected one of auto, spark, duckdb") as caught:
        EXECUTOR.of({EXECUTOR.name: "sparc"})
    assert caught.value.hint == 'Did you mean "spark"?'


@pytest.mark.parametrize("value", [None, "", "yes", "false", False, 1])
def test_nothing_but_true_is_true(value: object) -> None:
    assert not says_true(value)
