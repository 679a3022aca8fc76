"""Settings of connectors: the names that they had once mean the same."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from millstream.executor.connect.connector_errors import InvalidConnector
from millstream.executor.connect.connector_plugins import find_plugin
from millstream.executor.connect.connector_settings import problems_of, read_settings, setting, settings_of
from millstream.executor.connect.mysql.mysql_settings import MySqlSettings
from millstream.executor.connect.postgres.postgres_settings import PostgresSettings

PLACE = {"database.hostname": "h", "database.user": "u"}


@dataclass(frozen=True)
class Settings:
    topic_prefix: str = setting("The beginning.", earlier="server.name")
    table_list: tuple[str, ...] = setting("Tables.", default=(), earlier="whitelist")


def test_a_setting_is_read_by_its_earlier_name() -> None:
    assert read_settings(Settings, {"server.name": "a", "whitelist": "b, c"}) == Settings("a", ("b", "c"))
    assert problems_of(Settings, {"server.name": "a"}) == []
    assert [item.names for item in settings_of(Settings)] == [
        ("topic.prefix", "server.name"),
        ("table.list", "whitelist"),
    ]


def test_both_names_at_once_are_refused() -> None:
    given = {"topic.prefix": "a", "server.name": "a"}
    (problem,) = problems_of(Settings, given)
    assert problem.message == "topic.prefix and server.name are the same setting: leave one of them out"
    with pytest.raises(InvalidConnector, match="leave one of them out") as caught:
        read_settings(Settings, given)
    assert caught.value.setting == "topic.prefix"


def test_what_is_missing_is_named_as_it_is_called_now() -> None:
    assert [problem.name for problem in problems_of(Settings, {})] == ["topic.prefix"]


def test_the_sources_know_the_names_of_debezium_1() -> None:
    earlier = {"database.server.name": "p", "table.whitelist": "a", "table.blacklist": "b"}
    pg = read_settings(PostgresSettings, {**PLACE, **earlier, "database.dbname": "d"})
    assert (pg.topic_prefix, pg.table_include_list, pg.table_exclude_list) == ("p", ("a",), ("b",))
    more = {"database.whitelist": "c", "database.blacklist": "d", "column.blacklist": "e"}
    mysql = read_settings(MySqlSettings, {**PLACE, **earlier, **more})
    assert (mysql.topic_prefix, mysql.table_include_list, mysql.table_exclude_list) == ("p", ("a",), ("b",))
    assert mysql.database_include_list == ("c",)
    assert (mysql.database_exclude_list, mysql.column_exclude_list) == (("d",), ("e",))


def test_an_earlier_name_is_shown_as_the_setting_is() -> None:
    plugin = find_plugin("postgres", "SOURCE")
    assert plugin.shows("table.whitelist") and not plugin.shows("database.password")
