"""dbt-core keeps a project on a server: sources, streams, a windowed table, a seed, tests, a change, a full refresh.

It needs an environment of its own:

    python -m venv V && V/bin/pip install 'dbt-core>=1.11,<1.12' .
    MILLSTREAM_DBT=V/bin/python pytest -m soak tests/integrations/test_dbt.py

The adapter is read from this repository; one that is installed in V would be taken instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from certificates import make_certificates
from cheap_hashes import cheap_hash
from repository import REPOSITORY
from running_server import service_in

from millstream.server.client import HttpClient, RemoteError
from millstream.server.service import Service

PYTHON = os.environ.get("MILLSTREAM_DBT")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(PYTHON is None, reason="MILLSTREAM_DBT names no Python with dbt-core"),
]

FILES = {
    "dbt_project.yml": """
name: shop
version: '1.0'
profile: shop
models:
  shop:
    +materialized: stream
seeds:
  shop:
    countries:
      +key: code
      +column_types: {code: STRING, since: DATE}
""",
    "seeds/countries.csv": "code,name,since,rate\nDE,Germany,1949-05-23,19\nFR,France,1958-10-04,20\n",
    "models/clicks.sql": """
{{ config(materialized='source', topic='clicks', value_format='JSON', partitions=2) }}
user_id STRING KEY, url STRING, country STRING, size INT
""",
    "models/large.sql": "select * from {{ ref('clicks') }} where size > 1",
    "models/paid.sql": """
{{ config(partitions=1, value_format='DELIMITED') }}
select user_id, url, size * 2 as doubled from {{ ref('some') }}
""",
    "models/some.sql": "{{ config(materialized='ephemeral') }} select * from {{ ref('large') }} where url <> '/free'",
    "models/per_minute.sql": """
{{ config(materialized='table') }}
select user_id, count(*) as n, sum(size) as total
from {{ ref('clicks') }}
window tumbling (size 1 minute)
group by user_id
""",
    "models/models.yml": """
sources:
  - name: outside
    schema: public
    freshness: {warn_after: {count: 1, period: day}}
    loaded_at_field: rowtime
    tables: [{name: visits}]
models:
  - name: clicks
    description: What people clicked on.
    columns:
      - {name: user_id, data_tests: [not_null]}
      - name: country
        data_tests: [{relationships: {arguments: {to: ref('countries'), field: code}}}]
  - name: per_minute
    columns:
      - {name: user_id, data_tests: [not_null]}
  - name: large
    columns:
      - name: url
        data_tests: [{accepted_values: {arguments: {values: ['/x', '/y', '/free']}}}]
      - {name: user_id, data_tests: [unique]}
seeds:
  - name: countries
    columns: [{name: code, data_tests: [unique, not_null]}]
""",
    "models/visited.sql": "select * from {{ source('outside', 'visits') }}",
}
CLICKS = """
INSERT INTO clicks (ROWTIME, user_id, url, country, size) VALUES
  (0, 'ada', '/x', 'DE', 1), (1000, 'bob', '/y', 'FR', 2), (61000, 'ada', '/free', 'DE', 3),
  (62000, 'ada', '/x', 'DE', 4);
"""
CLICK = "INSERT INTO clicks (ROWTIME, user_id, url, country, size) VALUES (63000, 'cy', '/y', 'FR', 9);"
VISITS = """
CREATE STREAM visits (id INT KEY, page STRING) WITH (kafka_topic='visits', value_format='JSON', partitions=1);
INSERT INTO visits VALUES (1, '/');
"""
OUT = """
{{ config(materialized='sink') }}
'connector.class'='parquet', 'topics'='{{ adapter.topic_of(ref("clicks")) }}', 'location'='%s'
"""


@dataclass
class Project:
    """A folder with a project. `run`: what dbt prints; `results`: (name, status, message) of the last run."""

    folder: Path
    client: HttpClient

    def run(self, *arguments: str, code: int = 0) -> str:
        assert PYTHON is not None
        env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "integrations" / "dbt"), "HOME": str(self.folder)}
        env |= {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_USE_COLORS": "false"}
        command = [PYTHON, "-m", "dbt.cli.main", "--warn-error-options", '{"error": ["Deprecations"]}', *arguments]
        command += ["--profiles-dir", str(self.folder)]
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def results(self) -> dict[str, tuple[str, str]]:
        found = json.loads((self.folder / "target" / "run_results.json").read_text())["results"]
        return {each["unique_id"].split(".")[2]: (each["status"], each["message"]) for each in found}

    def write(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        self.client.properties["millstream.pull.full.sql"] = "true"
        return sorted(row.values for row in self.client.query(query))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("data")) as started:
        yield started


@pytest.fixture(scope="module")
def project(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("shop"), HttpClient(f"http://{service.http_address}"))
    for path, text in FILES.items():
        made.write(path, text)
    made.write("profiles.yml", profile(f"url: http://{service.http_address}"))
    made.client.execute(VISITS)
    return made


def profile(*lines: str) -> str:
    listed = "".join(f"      {line}\n" for line in lines)
    return f"shop:\n  target: dev\n  outputs:\n    dev:\n      type: millstream\n      threads: 2\n{listed}"


def test_a_project_from_its_seed_to_a_full_refresh(project: Project) -> None:
    assert "All checks passed" in project.run("debug")
    project.run("seed")
    assert project.rows("SELECT * FROM countries;") == [
        ("DE", "Germany", "1949-05-23", 19),
        ("FR", "France", "1958-10-04", 20),
    ]
    project.run("run")
    assert {name: status for name, (status, _) in project.results().items()} == dict.fromkeys(
        ["clicks", "large", "paid", "per_minute", "visited"], "success"
    )
    project.client.execute(CLICKS)
    # Tests wait for the results.
    printed = project.run("test", code=1)
    failed = {name for name, (status, _) in project.results().items() if status == "fail"}
    assert failed == {"unique_large_user_id"}
    assert "Got 1 result, configured to fail if != 0" in printed
    assert len(project.results()) == 7
    assert project.rows("SELECT user_id, WINDOWSTART, n, total FROM per_minute;") == [
        ("ada", 0, 1, 1),
        ("ada", 60000, 2, 7),
        ("bob", 0, 1, 2),
    ]
    assert project.rows("SELECT * FROM paid;") == [("ada", "/x", 8), ("bob", "/y", 4)]

    # Nothing has changed.
    project.run("build", "--exclude", "unique_large_user_id")
    messages = {name: message for name, (_, message) in project.results().items() if "." not in name}
    for name in ("clicks", "large", "paid", "per_minute", "visited", "countries"):
        assert messages[name] == "UNCHANGED"

    # A query is replaced and goes on where it was.
    project.write("models/large.sql", "select *, size + 1 as more from {{ ref('clicks') }} where size > 3 -- changed")
    project.run("run", "--select", "large")
    project.client.execute(CLICK)
    project.run("test", "--select", "large,test_name:accepted_values")
    assert project.rows("SELECT user_id, more FROM large;") == [("ada", None), ("ada", None), ("bob", None), ("cy", 10)]

    # What cannot be replaced is refused with what to do, and a full refresh does it.
    project.write("models/large.sql", "select user_id, size, url from {{ ref('clicks') }} where size > 3")
    refused = project.run("run", "--select", "large", code=1)
    assert "Cannot replace stream 'LARGE'" in refused and "dbt run --full-refresh --select NAME+" in refused
    refused = project.run("run", "--full-refresh", "--select", "large", code=1)
    assert "large is read by paid, which this run does not create again" in refused
    with_topics = FILES["dbt_project.yml"].replace("+materialized", "+delete_topic: true\n    +materialized")
    project.write("dbt_project.yml", with_topics)
    project.write("models/paid.sql", "{{ config(partitions=1) }} select user_id, url from {{ ref('large') }}")
    project.run("run", "--full-refresh", "--select", "large+")
    project.run("test", "--select", "large,test_name:accepted_values")
    assert project.rows("SELECT * FROM large;") == [("ada", 4, "/x"), ("cy", 9, "/y")]
    assert project.rows("SELECT * FROM paid;") == [("ada", "/x"), ("cy", "/y")]

    # A seed with a key follows its file.
    changed = "code,name,since,rate\nDE,Deutschland,1949-05-23,19\nIT,Italy,1946-06-02,22\n"
    project.write("seeds/countries.csv", changed)
    project.run("seed")
    assert project.results()["countries"][1] == "INSERT 3"  # one deleted, two written
    assert [row[:2] for row in project.rows("SELECT * FROM countries;")] == [("DE", "Deutschland"), ("IT", "Italy")]


def test_docs_freshness_and_show(project: Project) -> None:
    project.run("run")
    project.client.execute(CLICK)
    project.run("docs", "generate")
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text())
    assert catalog["errors"] is None
    columns = catalog["nodes"]["model.shop.per_minute"]["columns"]
    assert {name: column["type"] for name, column in columns.items()}["total"] == "INTEGER"
    assert catalog["nodes"]["model.shop.clicks"]["metadata"]["type"] == "STREAM"
    assert "source.shop.outside.visits" in catalog["sources"]
    assert "PASS freshness of outside.visits" in project.run("source", "freshness")
    assert "cy" in project.run("show", "--inline", "select * from {{ ref('clicks') }}")


def test_errors_say_what_the_server_said(project: Project) -> None:
    project.write("models/wrong.sql", "select usr_id from {{ ref('clicks') }}")
    assert 'Did you mean "USER_ID"?' in project.run("run", "--select", "wrong", code=1)
    for materialized, hint in (
        ("view", "stream or table"),
        ("incremental", "updated with each record"),
        ("stream', grants={'select': ['ana']}, alias='other", "roles in the server's configuration"),
    ):
        project.write("models/wrong.sql", f"{{{{ config(materialized='{materialized}') }}}} select 1 as a")
        assert hint in project.run("run", "--select", "wrong", code=1)
    project.write("models/wrong.sql", "{{ config(schema='other') }} select * from {{ ref('clicks') }}")
    assert "Millstream has no schemas" in project.run("parse", code=2)
    (project.folder / "models" / "wrong.sql").unlink()
    project.write("models/sunk.sql", "{{ config(materialized='sink') }} 'connector.class'='nope', 'topics'='clicks'")
    assert "nope" in project.run("run", "--select", "sunk", code=1)
    (project.folder / "models" / "sunk.sql").unlink()


def test_the_profile_names_a_user_and_the_certificates_to_trust(tmp_path: Path) -> None:
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    make_certificates(certificates)
    flags: dict[str, Any] = {
        "tls": {"certificate": certificates / "server.pem", "key": certificates / "server.key"},
        "access": {"users": {"ana": {"password": cheap_hash("a/b"), "roles": ["all"]}}},
    }
    flags["access"]["roles"] = {"all": {"admin": True}}
    with service_in(tmp_path / "data", **flags) as service:
        url = f"https://{service.http_address}"
        made = Project(tmp_path / "shop", HttpClient(url))
        made.write("dbt_project.yml", FILES["dbt_project.yml"])
        trusted = f"tls_ca: {certificates / 'ca.pem'}"
        made.write("profiles.yml", profile(f"url: {url}", "user: ana", "password: a/b", trusted))
        assert "All checks passed" in made.run("debug")
        made.write("profiles.yml", profile(f"url: {url}", "user: ana", "password: wrong", trusted))
        assert "the name, the password or the token is wrong" in made.run("debug", code=1)
        made.write("profiles.yml", profile(f"url: {url}", "user: ana", "password: a/b"))
        assert "is not trusted" in made.run("debug", code=1)
        made.write("profiles.yml", profile(f"url: https://ana:a@{service.http_address}"))
        assert "write user and password lines" in made.run("debug", code=1)


def test_the_project_of_the_page_builds(service: Service, tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "dbt.md").read_text()
    made = Project(tmp_path, HttpClient(f"http://{service.http_address}"))
    for path, text in re.findall(r"^```\w+\n(?:#|--) (\S+)\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        made.write(path, text.replace("127.0.0.1:8088", str(service.http_address)))
    made.client.execute("DROP TABLE IF EXISTS countries CASCADE DELETE TOPIC;")
    made.run("build")
    assert set(made.results()) >= {"orders", "named", "per_hour", "countries", "unique_orders_id"}
    made.client.execute("INSERT INTO orders VALUES (1, 'de', 5), (2, 'de', 6);")
    made.run("test")
    assert made.rows("SELECT country_name, n, total FROM per_hour;") == [("Germany", 2, 11)]


def test_sinks_are_made_changed_and_dropped(project: Project, tmp_path: Path) -> None:
    project.write("models/out.sql", OUT % tmp_path)
    project.run("run", "--select", "+out")
    (shown,) = project.client.execute("SHOW CONNECTORS;")
    assert [each["name"].upper() for each in shown["connectors"]] == ["OUT"]
    project.run("run", "--select", "out")
    project.run("run", "--select", "out", "--full-refresh")
    project.client.execute("DROP CONNECTOR out;")
    with pytest.raises(RemoteError):
        project.client.execute("DESCRIBE CONNECTOR out;")
