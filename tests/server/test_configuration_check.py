"""`millstream config`: a file looked through before a server starts, values in effect, and the reference manual."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from repository import REPOSITORY
from typer.testing import CliRunner

from millstream.cli import app
from millstream.server.config.configuration import Configuration
from millstream.server.config.configuration_check import (
    ConfigurationFinding,
    check_file,
    check_variables,
    effective,
)
from millstream.server.config.configuration_reference import properties, reference_tables, settings
from millstream.sql.settings.secret_values import HIDDEN


def check(tmp_path: Path, text: str) -> list[ConfigurationFinding]:
    file = tmp_path / "millstream.toml"
    file.write_text(text)
    return check_file(file, {})


def test_a_right_file_has_nothing_wrong(tmp_path: Path) -> None:
    text = 'data = "d"\nhttp = "127.0.0.1:8088"\n[properties]\nauto.offset.reset = "earliest"\n'
    assert check(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ('kafak = "x:1"', (1, 1), '"kafak" is not a setting of the server', 'Did you mean "kafka"?'),
        ('\n  http = "nowhere"', (2, 3), "\"http\": 'nowhere' is not an address", ""),
        ('body_bytes_max = "1MB"', (1, 1), '"body_bytes_max": must be a whole number', "It is in bytes"),
        ("data = [1]", (1, 1), '"data": must be a path, in quotes', ""),
        ("[access]\nusers = 3", (2, 1), '"access.users": must be a table', ""),
        ("body_bytes_max = 3", (1, 1), '"body_bytes_max": must be at least 1024', ""),
        ('http_hosts = "sql.example.com"', (1, 1), '"http_hosts": must be a list, in brackets', ""),
        ('[properties]\nmillstream.duckdb.memory.limit = "lots"', (2, 1), "expected a size, for example 512MB", ""),
        ('[tls]\ncertificate = "none.pem"\nkey = "none.key"', (1, 2), '"tls": the certificate or the key cannot', ""),
        ('[kafka_tls]\ncertificate = "a.pem"\nkey = "a.key"', (1, 2), '"kafka_tls": the certificate or the key', ""),
        ('log_level = "loud"', (1, 1), "\"log_level\": must be 'debug', 'info'", ""),
        ('ksql.service.id = "x"', (1, 1), '"ksql.service.id" is a property, not a setting', "[properties]"),
        ('[properties]\n"milstream.executor" = "spark"', (2, 1), "'milstream.executor'", "millstream.executor"),
        ('[properties]\nauto.offset.reset = "earlist"', (2, 1), "Invalid value 'earlist'", 'Did you mean "earliest"?'),
        ('[properties]\nauto.offset = { reset = "earlist" }', (2, 1), "Invalid value 'earlist'", ""),
        ('[tls]\ncertificate = "a.pem"', (1, 2), '"tls.key" must be given', ""),
        (
            '[tls]\ncertificate = "a"\nkey = "b"\nkeyy = "c"',
            (4, 1),
            '"tls.keyy" is not a setting',
            'Did you mean "key"?',
        ),
        ("[access.users.ada]\npasword = 'x'", (2, 1), '"access.users.ada.pasword" is not', 'Did you mean "password"?'),
        ("[access.users.ada]\npassword = 'x'", (2, 1), "it is not a hash", ""),
        ("properties = 3", (1, 1), "properties is a table", ""),
        ("a = \n", (1, 5), "not valid TOML", ""),
    ],
)
def test_a_mistake_is_told_with_its_place_and_what_was_meant(
    tmp_path: Path, text: str, place: tuple[int, int], message: str, hint: str
) -> None:
    (found,) = [each for each in check(tmp_path, text) if each.level == "error"]
    assert (found.line, found.column) == place
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    ("setting", "message"),
    [("schema_registry", "has no schema registry"), ("pg", "does not speak PostgreSQL's protocol")],
)
def test_what_a_node_of_a_cluster_has_not_is_told_before_it_starts(tmp_path: Path, setting: str, message: str) -> None:
    text = f'data = "d"\nnode = 1\ncluster = "1@127.0.0.1:9091"\n{setting} = "127.0.0.1:0"\n'
    (found,) = check(tmp_path, text)
    assert found.level == "error"
    assert message in found.message


def test_all_mistakes_are_told_at_once_in_their_order(tmp_path: Path) -> None:
    found = check(tmp_path, 'kafak = "x"\nhttp = "y"\n[properties]\nno.such = 1\n"ksql.suppress.enabled" = "maybe"\n')
    assert [(each.line, each.level) for each in found] == [(1, "error"), (2, "error"), (4, "error"), (5, "error")]


def test_names_of_ksqldb_are_notes_and_no_faults(tmp_path: Path) -> None:
    text = (
        'listeners = "http://127.0.0.1:8088"\n[properties]\n"ksql.streams.auto.offset.reset" = "latest"\nacks = "all"\n'
    )
    assert [(each.line, each.level, each.message) for each in check(tmp_path, text)] == [
        (1, "note", "listeners is ksqlDB's name for http"),
        (3, "note", "ksql.streams.auto.offset.reset is ksqlDB's name for auto.offset.reset"),
        (4, "note", "acks is accepted, and has no effect"),
    ]


def test_one_property_by_two_names_is_a_warning(tmp_path: Path) -> None:
    text = '[properties]\n"auto.offset.reset" = "latest"\n"ksql.streams.auto.offset.reset" = "earliest"\n'
    assert ("warning", 3) in [(each.level, each.line) for each in check(tmp_path, text)]


def test_a_variable_that_nobody_reads_is_a_warning() -> None:
    environment = {"MILLSTREAM_LOGLEVEL": "debug", "MILLSTREAM_HTTP": "x", "MILLSTREAM_TLS__KEY": "k", "HOME": "/"}
    (found,) = check_variables(environment)
    assert (found.level, found.name, found.hint) == (
        "warning", "MILLSTREAM_LOGLEVEL", 'Did you mean "MILLSTREAM_LOG_LEVEL"?',
    )  # fmt: skip


def test_values_in_effect_say_where_they_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "m.toml"
    file.write_text(
        'data = "d"\nhttp = "127.0.0.1:1"\nkafka = "127.0.0.1:2"\n[properties]\nauto.offset.reset="earliest"\n'
    )
    monkeypatch.setenv("MILLSTREAM_KAFKA", "127.0.0.1:3")
    found = {each.name: (each.value, each.source) for each in effective(file, {"data": Path("e")})}
    assert found["data"] == ("e", "flag --data")
    assert found["http"] == ("127.0.0.1:1", f"{file}, line 2")
    assert found["kafka"] == ("127.0.0.1:3", "variable MILLSTREAM_KAFKA")
    assert found["log_level"] == ("info", "default")
    assert found["properties.auto.offset.reset"] == ("earliest", f"{file}, line 5")
    assert found["properties.millstream.executor"] == ("auto", "default")


def test_secrets_are_never_shown(tmp_path: Path) -> None:
    hashed = CliRunner().invoke(app, ["access", "password"], input="hunter22hunter22\n").output.strip()
    file = tmp_path / "m.toml"
    file.write_text(
        f'data = "d"\n[tls]\ncertificate = "c"\nkey = "k"\nkey_password = "secret-1"\n'
        f'[access.users.ada]\npassword = "{hashed}"\nroles = ["r"]\n[access.roles.r]\nread = ["*"]\n'
        '[properties]\n"ksql.streams.producer.sasl.jaas.config" = "secret-2"\n'
    )
    shown = CliRunner().invoke(app, ["config", "show", str(file), "--all"]).output
    assert "secret-1" not in shown
    assert "secret-2" not in shown
    assert hashed not in shown
    assert shown.count(HIDDEN) == 3
    assert "access.users.ada.roles" in shown


def test_secrets_of_the_connection_to_brokers_are_not_shown_either(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text(
        'data = "d"\nkafka = "external"\n[external]\nbootstrap.servers = "a:9092"\nsecurity.protocol = "SASL_SSL"\n'
        'sasl.username = "ana"\nsasl.password = "secret-1"\nssl.keystore.key = "secret-2"\n'
        "sasl.jaas.config = 'x required password=\"secret-3\";'\n"
    )
    shown = CliRunner().invoke(app, ["config", "show", str(file), "--all"]).output
    assert "a:9092" in shown
    assert "ana" in shown
    assert "secret-" not in shown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('kafka = "external"', "needs both"),
        ('[external]\nbootstrap.servers = "a:9092"', "needs both"),
        ('kafka = "external"\n[external]\nbootstrap.servers = "a"', "names no brokers"),
        ('kafka = "external"\n[external]\nbootstrap.servers = "a:1"\nno.such = 1', "no.such"),
        (
            'kafka = "external"\nnode = 1\ncluster = "1@a:1"\n[external]\nbootstrap.servers = "a:1"',
            "a log of its own",
        ),
    ],
)
def test_an_external_log_that_cannot_be_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "m.toml"
    file.write_text(f'data = "d"\n{text}\n')
    refused = CliRunner().invoke(app, ["config", "show", str(file)])
    assert refused.exit_code == 1
    assert message in refused.output


def test_the_command_ends_with_1_where_a_server_would_refuse(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    file.write_text("kafak = 1\n")
    refused = CliRunner().invoke(app, ["config", "check", str(file)])
    assert refused.exit_code == 1
    assert f"{file}:1:1: error: " in refused.output
    told = CliRunner().invoke(app, ["config", "check", str(file), "--json"])
    assert json.loads(told.output)[0]["name"] == "kafak"
    file.write_text("")
    assert CliRunner().invoke(app, ["config", "check", str(file)]).exit_code == 0
    assert CliRunner().invoke(app, ["config", "check", str(tmp_path / "none.toml")]).exit_code == 1


def test_the_manual_has_every_setting_and_property_with_a_meaning() -> None:
    assert [setting.name for setting in settings() if not setting.doc] == []
    assert [entry.name for entry in properties() if not entry.doc] == []
    tops = {setting.name.partition(".")[0] for setting in settings()}
    assert tops == set(Configuration.model_fields) - {"properties"}
    manual = (REPOSITORY / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert manual.endswith(reference_tables()), "write it anew: scripts/configuration_reference.py"


def test_a_file_of_ksqldb_is_told_to_become_toml(tmp_path: Path) -> None:
    (tmp_path / "ksql-server.properties").write_text("listeners=http://0.0.0.0:8088\n")
    (finding,) = check_file(tmp_path / "ksql-server.properties", {})
    assert (finding.line, finding.hint.partition(":")[0]) == (1, "Convert a file of ksqlDB to TOML")
