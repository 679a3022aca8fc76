"""`millstream group`, and `consume --group`, on a server's Kafka listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from running_server import service_in
from typer.testing import CliRunner

from millstream import cli


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service_in(tmp_path_factory.mktemp("data")) as service:
        yield str(service.kafka_address)


@pytest.fixture
def run(kafka: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command in this process."""
    monkeypatch.setattr(cli, "_log_to_stderr", lambda level: None)
    return lambda *arguments, input="": CliRunner().invoke(
        cli.app, list(arguments), input=input, env={"MILLSTREAM_KAFKA": kafka}
    )


def cells(printed: str) -> list[list[str]]:
    """The rows of a table, without titles and rules."""
    return [
        [cell.strip() for cell in line.split("|")]
        for line in printed.splitlines()
        if "|" in line and "Topic" not in line
    ]


def test_a_group_goes_on_where_it_was_and_can_be_sent_back(run: Callable[..., Any]) -> None:
    run("topic", "create", "clicks")
    run("produce", "clicks", input="1\n2\n3\n")
    first = run("consume", "clicks", "--group", "readers", "--from-beginning", "--limit", "2")
    assert first.exit_code == 0, first.output
    assert [line.rpartition(":")[2] for line in first.stdout.splitlines()] == ["1}", "2}"]
    described = run("group", "describe", "readers").stdout
    assert described.startswith("readers: Empty, 0 members")
    assert cells(described) == [["clicks", "0", "2", "3", "1", "2", ""]]
    assert "readers" in run("group", "list").stdout
    for to, offset in [
        ("latest", "3"),
        ("1", "1"),
        ("2000-01-01", "0"),
        ("2100-01-01T00:00:00Z", "3"),
        ("earliest", "0"),
    ]:
        assert cells(run("group", "reset-offsets", "readers", "--topic", "clicks", "--to", to).stdout) == [
            ["clicks", "0", offset]
        ]
    assert len(run("consume", "clicks", "--group", "readers", "--limit", "3").stdout.splitlines()) == 3
    assert run("group", "delete", "readers").exit_code == 0
    assert "readers" not in run("group", "list").stdout


def test_what_cannot_be_done_is_one_sentence(run: Callable[..., Any]) -> None:
    run("topic", "create", "here")
    wrong = [
        (("group", "describe", "nobody"), 'error: group "nobody" does not exist; '),
        (("group", "delete", "nobody"), 'error: group "nobody" cannot be deleted: group id not found'),
        (
            ("group", "reset-offsets", "g", "--topic", "here", "--to", "soon"),
            'error: offsets cannot be set to "soon"; ',
        ),
        (("group", "reset-offsets", "g", "--topic", "nope", "--to", "latest"), 'error: topic "nope" does not exist'),
    ]
    for arguments, message in wrong:
        ended = run(*arguments)
        assert ended.exit_code == 1
        assert ended.stderr.startswith(message), ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_an_offset_that_no_partition_can_have_is_refused(run: Callable[..., Any]) -> None:
    run("topic", "create", "few")
    run("produce", "few", input="1\n")
    run("consume", "few", "--group", "far", "--from-beginning", "--limit", "1")
    refused = run("group", "reset-offsets", "far", "--topic", "few", "--to", "9" * 5_000)
    assert refused.exit_code == 1
    assert "offsets cannot be set to" in refused.output
