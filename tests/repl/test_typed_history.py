"""The shell's history keeps no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.repl.typed_history import TypedHistory


@pytest.mark.parametrize(
    "typed",
    [
        "\\c http://ada:hunter2@127.0.0.1:8088",
        "CREATE SECRET pg ('password'='hunter2', 'user'='ana');",
        "create or replace secret pg ('password'='it's hunter2",
        "CREATE SINK CONNECTOR c WITH ('connection.password'='hunter2', 'topics'='t');",
        "ALTER CONNECTOR c WITH ('connection.url'='postgresql://ana:hunter2@db/x');",
        "CREATE SINK CONNECTOR c WITH ('password'='hunter2",
        "CREATE SINK CONNECTOR c WITH ('connection.url'='jdbc:postgresql://db/x?user=ana&password=hunter2&ssl=on');",
        "CREATE SINK CONNECTOR c WITH ('connection.url'='jdbc:sqlserver://db;user=ana;password=hunter2');",
        "CREATE SINK CONNECTOR c WITH ('http.url'='https://h/x?access_token=hunter2#a');",
        "\\c http://ada:p@hunter2@127.0.0.1:8088",
        "\\c http://ada:p/hunter2@127.0.0.1:8088",
        "CREATE SINK CONNECTOR c WITH ('url'='redis://:hunter2@cache');",
        "ALTER SECRET pg ('password'='hunter2');",
    ],
)
def test_a_secret_that_was_typed_is_not_in_the_file(tmp_path: Path, typed: str) -> None:
    TypedHistory(tmp_path / "history").store_string(typed)
    assert "hunter2" not in (tmp_path / "history").read_text()


def test_everything_else_is(tmp_path: Path) -> None:
    for typed in (
        "CREATE SINK CONNECTOR c WITH ('password'='${secret:pg}', 'topics'='t'); SELECT 'secret' FROM s;",
        "CREATE SINK CONNECTOR c WITH ('url'='http://h:80/a?to=b@c', 'other'='http://[::1]:80/@d&password=${env:P}');",
    ):
        TypedHistory(tmp_path / "history").store_string(typed)
        assert typed in (tmp_path / "history").read_text()
