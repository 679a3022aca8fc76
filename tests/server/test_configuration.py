"""Where settings come from, which goes before which, and what is said about bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.server.config.configuration import InvalidConfiguration, ListenAddress, load_configuration
from millstream.server.config.configuration_check import check_file

FILE = """
data = "from-file"
http = "0.0.0.0:1"
kafka = "[::1]:2"

[properties]
"ksql.service.id" = "mine"
auto.offset.reset = "earliest"
ksql.max.push.queries = 7
"""


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA", "HTTP", "KAFKA", "EXECUTOR", "PROPERTIES", "LOG_LEVEL", "BODY_BYTES_MAX"):
        monkeypatch.delenv(f"MILLSTREAM_{name}", raising=False)


def test_flags_go_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text(FILE)
    monkeypatch.setenv("MILLSTREAM_HTTP", "127.0.0.1:3")
    monkeypatch.setenv("MILLSTREAM_DATA", "from-environment")
    read = load_configuration(file, {"data": Path("from-flag"), "http": None, "executor": "duckdb"})
    assert read.data == Path("from-flag")
    assert read.http == ListenAddress("127.0.0.1", 3)
    assert read.kafka == ListenAddress("::1", 2)
    assert read.engine_properties == {
        "ksql.service.id": "mine",
        "auto.offset.reset": "earliest",
        "ksql.max.push.queries": "7",
        "millstream.executor": "duckdb",
    }


def test_properties_can_come_from_the_environment_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_PROPERTIES", '{"ksql.streams.auto.offset.reset": "EARLIEST"}')
    assert load_configuration(None, {"data": "d"}).properties == {"auto.offset.reset": "earliest"}


def test_the_defaults_listen_on_this_machine_only() -> None:
    read = load_configuration(None, {"data": "d"})
    assert (str(read.http), str(read.kafka)) == ("127.0.0.1:8088", "127.0.0.1:9092")
    assert read.body_bytes_max == 1 << 20


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("data = ", "is not valid TOML"),
        ('data = "d"\nhtpp = "x"', '"htpp" is not a setting of the server'),
        ('data = "d"\nhttp = "nine"', "'nine' is not an address"),
        ('data = "d"\nhttp = "localhost:99999"', "is not an address"),
        ('data = "d"\nexecutor = "flink"', 'the setting "executor" cannot be used'),
        ('data = "d"\n[properties]\nauto.offset.rest = "x"', "'auto.offset.rest'"),
        ('http = "127.0.0.1:1"', "no data folder is given"),
        ('data = "d"\nsession_ms = "soon"', 'the setting "session_ms" cannot be used: it must be a whole number'),
        ('data = ""', 'the setting "data" cannot be used: the path is empty'),
        ('data = "d\\u0000"', 'the setting "data" cannot be used: the path has a NUL character'),
    ],
)  # fmt: skip
def test_a_bad_file_is_explained(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "millstream.toml"
    file.write_text(content)
    with pytest.raises(InvalidConfiguration) as refused:
        load_configuration(file, {})
    assert message in refused.value.message


def test_a_file_may_begin_with_a_byte_order_mark_and_have_lines_as_on_windows(tmp_path: Path) -> None:
    file = tmp_path / "millstream.toml"
    file.write_bytes(b'\xef\xbb\xbfdata = "d"\r\nhttp = "127.0.0.1:3"\r\n')
    assert load_configuration(file, {}).http == ListenAddress("127.0.0.1", 3)
    assert check_file(file, {}) == []


def test_a_file_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot be read: no such file"):
        load_configuration(tmp_path / "none.toml", {})


def test_a_variable_that_is_no_table_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_EXTERNAL", "{")
    with pytest.raises(InvalidConfiguration) as refused:
        load_configuration(None, {"data": Path("d")})
    assert refused.value.message == "the configuration cannot be used: MILLSTREAM_EXTERNAL is not a JSON object"
    assert "MILLSTREAM_EXTERNAL__NAME" in str(refused.value.hint)
