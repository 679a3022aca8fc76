"""Passwords are taken out of the texts of statements about connectors, whole or broken."""

from __future__ import annotations

import pytest

from millstream.server.security.statement_secrets import without_secrets


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SINK CONNECTOR c WITH ('a'='b', 'n'=0, 'password'='hunter2', 'topics'='t');",
        "CREATE SINK CONNECTOR c WITH ('password'='hunter2', 'n'=0, 'db.secret'='hunter2');",
        "CREATE SINK CONNECTOR c WITH ('password'='it''s hunter2', n=0);",
        "CREATE SINK CONNECTOR c WITH ('password'='it's hunter2', 'n'=0);",
        "CREATE SINK CONNECTOR c WITH (password = 'hunter2');",
        "CREATE SINK CONNECTOR c WITH (`api.key` 'hunter2');",
        "CREATE SINK CONNECTOR c WITH ('password'='hunter2",
        "create sink connector c with ('connection.url'='postgresql://ana:hunter2@db/x');",
        "ALTER CONNECTOR c WITH ('connector.class'='datagen', 'unknown'='hunter2');",
        "SHOW STREAMS; CREATE SINK CONNECTOR c WITH ('sasl.jaas.config'='… password=\"hunter2\";');",
    ],
)
def test_a_secret_becomes_stars_and_the_text_keeps_its_length(text: str) -> None:
    shown = without_secrets(text)
    assert "hunter2" not in shown
    assert len(shown) == len(text)


@pytest.mark.parametrize(
    "text",
    [
        "CREATE SINK CONNECTOR c WITH ('password'='${file:/etc/db.properties:password}', 'topics'='t');",
        "CREATE SOURCE CONNECTOR c WITH ('connector.class'='datagen', 'quickstart'='users', 'tasks.max'='2');",
        "SELECT * FROM s WHERE password = 'hunter2';",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text
