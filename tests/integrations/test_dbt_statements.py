"""What the dbt adapter sends, without dbt: its statements, the change of a seed, its packaging."""

from __future__ import annotations

import datetime
import doctest
import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cheap_hashes import cheap_hash
from repository import REPOSITORY, pyproject
from running_server import service_in

from millstream.server.client import RemoteError, connect

FOLDER = REPOSITORY / "integrations" / "dbt"
ADAPTER = FOLDER / "dbt" / "adapters" / "millstream"
CSV = [(1, "it's", datetime.date(2024, 5, 1), Decimal("1.5")), (2, None, None, None)]
TYPES = {"id": "BIGINT", "name": "STRING", "since": "DATE", "rate": "DOUBLE"}


@pytest.fixture(scope="module", autouse=True)
def adapter() -> Iterator[None]:
    """The modules that know nothing of dbt, as a package without the adapter's `__init__`, which needs it."""
    package = ModuleType("adapter_without_dbt")
    package.__path__ = [str(ADAPTER)]
    sys.modules[package.__name__] = package
    yield
    for name in [name for name in sys.modules if name.startswith(package.__name__)]:
        del sys.modules[name]


def module(name: str) -> Any:
    return importlib.import_module(f"adapter_without_dbt.{name}")


@pytest.mark.parametrize("name", ["statements", "server_connection"])
def test_examples_in_docstrings_hold(name: str) -> None:
    found = doctest.testmod(module(name))
    assert found.attempted > 0 and found.failed == 0


def test_a_seed_with_a_key_follows_its_file_and_one_without_is_a_stream(tmp_path: Path) -> None:
    statements, seeds = module("statements"), module("seeds")
    with service_in(tmp_path) as service:
        client = connect(f"http://{service.http_address}")

        def load(name: str, config: dict[str, Any], wanted: list[tuple[Any, ...]]) -> int:
            create = statements.create_seed(name, TYPES, config)
            exists = any(name.upper() in str(entity) for entity in client.execute("SHOW STREAMS; SHOW TABLES;"))
            found = [row.values for row in client.query(f"SELECT * FROM {name};")] if exists else None
            change = seeds.seed_change(name, TYPES, config, wanted, found, [create])
            for text in change.statements:
                client.execute(text)
            return change.rows

        assert [load("people", {"key": "ID"}, CSV) for _ in range(2)] == [2, 0]
        assert load("people", {"key": "ID"}, [(3, "new", None, 2), CSV[0]]) == 2
        rows = sorted(row.values for row in client.query("SELECT * FROM people;"))
        assert rows == [(1, "it's", "2024-05-01", 1.5), (3, "new", None, 2.0)]
        assert [load("events", {}, CSV) for _ in range(2)] == [2, 0]
        with pytest.raises(statements.InvalidConfiguration, match="dbt seed --full-refresh"):
            load("events", {}, CSV[:1])
        with pytest.raises(statements.InvalidConfiguration, match="no column; columns are id, name"):
            load("more", {"key": "nope"}, CSV)
        with pytest.raises(statements.InvalidConfiguration, match="several rows with the key 1"):
            load("more", {"key": "id"}, [CSV[0], CSV[0]])
        with pytest.raises(statements.InvalidConfiguration, match="a row without a value of its key"):
            load("more", {"key": ["id", "name"]}, CSV)


def test_values_of_each_type_are_equal_to_those_that_the_server_has(tmp_path: Path) -> None:
    statements, seeds = module("statements"), module("seeds")
    types = {
        "a": "INT",
        "b": "BOOLEAN",
        "c": "DECIMAL(10, 2)",
        "d": "DOUBLE",
        "e": "TIMESTAMP",
        "f": "TIME",
        "g": "DATE",
    }
    texts = ("7", "True", "1.5", "1e-7", "2024-05-01 10:00:00", "10:11:12", "2024-05-01")  # as column_types gives them
    at = datetime.datetime(2024, 5, 1, 10, 0, 0, 123000)
    values = (7, False, Decimal("2"), Decimal("0.1"), at, datetime.time(10, 11), datetime.date(1, 2, 3))
    create = statements.create_seed("all_types", types, {})
    with service_in(tmp_path) as service:
        client = connect(f"http://{service.http_address}")
        for text in seeds.seed_change("all_types", types, {}, [texts, values], None, [create]).statements:
            client.execute(text)
        found = [row.values for row in client.query("SELECT * FROM all_types;")]
    assert len(found) == 2
    assert seeds.seed_change("all_types", types, {}, [texts, values], found, [create]).rows == 0
    with pytest.raises(statements.InvalidConfiguration, match="'x' is no value of the type INT"):
        seeds.seed_change("all_types", types, {}, [("x", *texts[1:])], None, [create])


def test_rows_are_sent_in_statements_that_a_server_takes() -> None:
    rows = [("1", "'x'")] * 4_000 + [("2", "'" + "y" * 150_000 + "'")] * 2
    sent = list(module("statements").insert("s", ["a", "b"], rows))
    assert [text.count("(") - 1 for text in sent] == [1500, 1500, 1001, 1]


def test_sources_take_their_columns_with_or_without_parentheses() -> None:
    create = module("statements").create_source
    plain = create("s", "id INT KEY, d DECIMAL(4, 2)", {"kind": "table"})
    assert module("statements").same_statement(plain, create("s", "(id INT KEY, d DECIMAL(4, 2));", {"kind": "TABLE"}))
    with pytest.raises(module("statements").InvalidConfiguration, match="write 'stream' or 'table'"):
        create("s", "id INT", {"kind": "view"})


def test_a_connection_runs_statements_and_names_what_is_refused(tmp_path: Path) -> None:
    connecting = module("server_connection")
    access: dict[str, Any] = {"users": {"ana": {"password": cheap_hash("a/b"), "roles": ["all"]}}}
    access["roles"] = {"all": {"admin": True}}
    with service_in(tmp_path, access=access) as service:
        url = f"http://{service.http_address}"
        with pytest.raises(RemoteError, match="the password or the token is wrong"):
            connecting.connect_to(url, "ana", "b", None, None, {})
        connection = connecting.connect_to(url, "ana", "a/b", None, None, {"auto.offset.reset": "earliest"})
        cursor = connection.cursor()
        cursor.execute("CREATE STREAM s (id INT) WITH (kafka_topic='s', value_format='JSON', partitions=1);")
        assert (cursor.message, cursor.fetchall(), cursor.description) == ("Stream created", [], None)
        cursor.execute("/* a comment */ SELECT COUNT(*) AS n FROM s;")
        assert (cursor.description, cursor.fetchall()) == ([("N", "BIGINT")], [(0,)])
        connection.use({"auto.offset.reset": "latest", "x": True})
        assert connection.client.properties["auto.offset.reset"] == "latest"
        connection.use({})
        assert connection.client.properties == {"millstream.pull.full.sql": "true", "auto.offset.reset": "earliest"}


def test_the_adapter_is_a_distribution_of_its_own() -> None:
    own = tomllib.loads((FOLDER / "pyproject.toml").read_text())
    assert own["project"]["version"] in (ADAPTER / "__version__.py").read_text()
    assert all(re.search(r">=.*<", each) for each in own["project"]["dependencies"])
    assert not any("dbt" in package for package in pyproject()["tool"]["setuptools"]["packages"])
    packaged = own["tool"]["setuptools"]["packages"]
    folders = {path.parent.relative_to(FOLDER).as_posix().replace("/", ".") for path in FOLDER.glob("dbt/**/*.py")}
    assert folders == set(packaged)
