"""`millstream topic`, `produce` and `consume` on a server's Kafka listener."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import service_in
from typer.testing import CliRunner

from millstream import cli
from millstream.logcore.errors import UnknownTopic
from millstream.logcore.log import open_log
from millstream.repl.records import find_topic, topic_table

LINES = '{"id": "a", "v": 1}\n\n{"id": "b", "v": 2}\n{"id": "a", "v": 3}\n'


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


def test_lines_go_in_and_come_out_by_key(run: Callable[..., Any], tmp_path: Path) -> None:
    assert run("topic", "create", "clicks", "--partitions", "3").exit_code == 0
    assert " clicks |          3" in run("topic", "list").stdout
    produced = run("produce", "clicks", "--key", "id", input=LINES)
    assert (produced.exit_code, produced.stderr) == (0, "3 records\n")
    (tmp_path / "more.ndjson").write_text("no json\n")
    assert run("produce", "clicks", "--file", str(tmp_path / "more.ndjson")).exit_code == 0
    consumed = run("consume", "clicks", "--from-beginning", "--limit", "4")
    records = [json.loads(line) for line in consumed.stdout.splitlines()]
    assert sorted((record["key"] or "", str(record["value"])) for record in records) == [
        ("", "no json"),
        ("a", "{'id': 'a', 'v': 1}"),
        ("a", "{'id': 'a', 'v': 3}"),
        ("b", "{'id': 'b', 'v': 2}"),
    ]
    assert len({record["partition"] for record in records if record["key"] == "a"}) == 1
    assert run("topic", "delete", "clicks").exit_code == 0
    assert "clicks" not in run("topic", "list").stdout


def test_what_cannot_be_done_is_one_sentence(run: Callable[..., Any]) -> None:
    run("topic", "create", "here")
    wrong = [
        (("consume", "nope"), 'error: topic "nope" does not exist; create it with'),
        (("produce", "here", "--key", "id"), "error: line 1 is not valid JSON"),
        (("produce", "here", "--file", "none.ndjson"), "error: none.ndjson cannot be read: no such file or directory"),
        (("topic", "create", "here"), 'error: topic "here" exists already'),
        (("topic", "list", "--kafka", "127.0.0.1:1"), "error: "),
    ]
    for arguments, message in wrong:
        ended = run(*arguments, input="{")
        assert ended.exit_code == 1
        assert ended.stderr.startswith(message), ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_the_topics_of_a_server_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the network each answer has all topics: with 5,000 of them the list took hours."""
    with open_log(tmp_path) as log:
        for name in ("b", "a", "_own", "c"):
            log.create_topic(name, 2)
        asked: list[str] = []
        topics = log.topics
        monkeypatch.setattr(log, "topics", lambda: asked.append("all") or topics())
        assert [line.split("|")[0].strip() for line in topic_table(log)] == [
            "Topic",
            "-------+------------",
            "a",
            "b",
            "c",
        ]
        assert asked == ["all"]
        assert find_topic(log, "b").partition_count == 2
        assert asked == ["all"]
        with pytest.raises(UnknownTopic, match='topic "bb" does not exist'):
            find_topic(log, "bb")
