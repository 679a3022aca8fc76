"""The shell's own commands: how they are read, and what they do."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import MillstreamError
from millstream.repl.actions import CommandFailed
from millstream.repl.commands import SHORT, Command, UnknownCommand, command_of, help_text
from millstream.repl.printer import Printer, ResultsUnwritable
from millstream.repl.runner import Runner
from millstream.repl.settings import BadSetting
from millstream.repl.splitting import is_finished, parts
from millstream.repl.typed_history import history_file, open_history, typed_entries
from millstream.server.client import LocalClient
from millstream.server.engine.session import Session
from millstream.testing import Sandbox


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Shell:
    """A session whose outputs are texts; `run` gives what was said since the last time."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        client = LocalClient(sandbox.engine, Session(), address="a sandbox", close=lambda: None)
        self.runner = Runner(client, Printer(self.out, self.err), interactive=True)

    def run(self, text: str) -> list[str]:
        for stream in (self.out, self.err):
            stream.truncate(0)
            stream.seek(0)
        self.runner.run(text)
        return self.out.getvalue().splitlines()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as opened:
        opened.execute("""
            CREATE STREAM clicks (url STRING KEY, n INT) WITH (kafka_topic='clicks', value_format='JSON', partitions=1);
            CREATE STREAM other (n INT) WITH (kafka_topic='other', value_format='JSON', partitions=1);
            CREATE TABLE totals AS SELECT url, SUM(n) AS total FROM clicks GROUP BY url;
            INSERT INTO clicks VALUES ('/', 1);
        """)
        yield opened


@pytest.fixture
def shell(sandbox: Sandbox) -> Shell:
    return Shell(sandbox)


def test_a_command_of_a_backslash_goes_to_the_end_of_its_line() -> None:
    assert command_of("\\i it's.sql;") == Command("run script", "it's.sql")
    assert command_of("\\o 'a file.txt'") == Command("redirect", "a file.txt")
    assert command_of("spool 'a.txt';") == Command("spool", "a.txt")
    assert command_of("\\watch 3 4") == Command("watch", "3 4")
    found = [(part.text.strip(), part.ended) for part in parts("SELECT '\\d' \\watch 2\n\\x\nSHOW\nTABLES")]
    assert found == [("SELECT '\\d'", False), ("\\watch 2", True), ("\\x", True), ("SHOW\nTABLES", False)]


def test_an_unknown_command_is_said_with_what_is_like_it() -> None:
    with pytest.raises(UnknownCommand) as caught:
        command_of("\\timin")
    assert caught.value.hint == 'Did you mean "\\timing"?'


def test_every_command_stands_in_the_help_and_in_the_manual() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "shell.md").read_text(encoding="utf-8")
    for short in SHORT:
        assert short in help_text()
        assert f"`{short}" in manual, short


def test_enter_sends_what_is_finished() -> None:
    assert all(map(is_finished, ["", "SHOW STREAMS;", "\\d", "a; -- b", "SELECT 1 \\g"]))
    assert not any(map(is_finished, ["SELECT 1", "SELECT ';", "SELECT '\\d"]))


def test_the_catalog_is_listed_and_described(shell: Shell) -> None:
    assert [line.split("|")[0].strip() for line in shell.run("\\d")[2:]] == ["CLICKS", "OTHER", "TOTALS"]
    assert [line.split("|")[0].strip() for line in shell.run("\\ds c*")[2:]] == ["CLICKS"]
    assert [line.split("|")[0].strip() for line in shell.run("\\dt")[2:]] == ["TOTALS"]
    assert "Name      : CLICKS" in shell.run("\\d clicks")
    assert "Name      : CLICKS" in shell.run('\\d "CLICKS"')
    with pytest.raises(MillstreamError, match="clicks does not exist"):
        shell.run('\\d "clicks"')  # in quotes, a name is what it is
    with pytest.raises(MillstreamError, match="日本 does not exist"):
        shell.run("\\d 日本")  # which SQL reads between quotes only
    (query,) = shell.run("\\dq")[2:]
    query_id = query.split("|")[0].strip()
    assert f"Query ID  : {query_id}" in shell.run(f"\\dq {query_id}")
    assert [line.split("|")[0].strip() for line in shell.run("\\df REGEXP_SPLIT*")[2:]] == ["REGEXP_SPLIT_TO_ARRAY"]
    assert "  UCASE(text STRING) -> STRING" in shell.run("\\df ucase")


def test_a_result_can_be_shown_a_line_per_column(shell: Shell) -> None:
    query = "SELECT url, n FROM clicks"
    assert shell.run(f"{query} \\gx") == ["-[ RECORD 1 ]", "URL | /", "N   | 1"]
    assert shell.run("\\g") == [" URL | N", "-----+---", " /   | 1"]
    assert shell.run(f"\\x on\n{query};\n\\x off\n{query};")[:2] == ["-[ RECORD 1 ]", "URL | /"]
    assert not shell.runner.settings.expanded


def test_timing_is_a_remark(shell: Shell) -> None:
    shell.run("\\timing\nSHOW STREAMS;")
    assert shell.err.getvalue().splitlines()[0] == "Timing is on."
    assert shell.err.getvalue().splitlines()[1].startswith("Time: ")


def test_watch_runs_a_statement_so_many_times(shell: Shell) -> None:
    assert shell.run("SELECT n FROM clicks \\watch 0.01 3") == [" N", "---", " 1"] * 3
    assert shell.run("SHOW VARIABLES;\n\\watch 0.01 1")[2:] == [" Variable | Value", "----------+-------"]
    with pytest.raises(BadSetting):
        shell.run("\\watch often")


def test_what_goes_on_by_itself_is_not_watched(shell: Shell) -> None:
    from millstream.errors import InvalidStatement

    for statement in ("SELECT * FROM clicks EMIT CHANGES", "PRINT clicks"):
        with pytest.raises(InvalidStatement):
            shell.run(f"{statement} \\watch 1 1")


def test_results_go_to_a_file_and_what_is_said_to_another(shell: Shell, tmp_path: Path) -> None:
    said, results = tmp_path / "said.txt", tmp_path / "results.txt"
    out = shell.run(f"spool '{said}';\n\\o {results}\nSELECT n FROM clicks;\n\\o\nSHOW VARIABLES;\nspool off;")
    assert results.read_text().splitlines() == [" N", "---", " 1"]
    assert out == [" Variable | Value", "----------+-------"]
    assert said.read_text().splitlines()[1:] == [" N", "---", " 1", "Query Completed", *out]
    with pytest.raises(CommandFailed):
        shell.run(f"\\o {tmp_path}/missing/file")
    with pytest.raises(CommandFailed, match="a pipe"):
        shell.run("\\o |cat")


def test_a_file_that_cannot_be_written_leaves_the_one_before_it(shell: Shell, tmp_path: Path) -> None:
    said, results = tmp_path / "said.txt", tmp_path / "results.txt"
    shell.run(f"spool '{said}';\n\\o {results}\n")
    for command in (f"spool '{tmp_path}/missing/file';", f"\\o {tmp_path}/missing/file"):
        with pytest.raises(CommandFailed):
            shell.run(command)
    shell.run("SELECT n FROM clicks;\n\\o\nSHOW VARIABLES;\nspool off;")
    assert results.read_text().splitlines() == [" N", "---", " 1"]
    assert "Variable" in said.read_text()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("text", ["SHOW VARIABLES;", "output csv; SELECT n FROM clicks;"])
def test_a_full_disk_ends_the_redirection_and_not_the_session(shell: Shell, text: str) -> None:
    with pytest.raises(ResultsUnwritable, match="/dev/full cannot be written: no space left on device"):
        shell.run(f"\\o /dev/full\nDEFINE v = 'x';\n{text}")
    assert shell.run("output table; SHOW VARIABLES;")[-1] == " v        | x"
    shell.run("UNDEFINE v;")


def test_the_editor_gets_the_last_statement_and_what_it_wrote_is_the_next_draft(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/clicks/other/ "$1"\n')
    editor.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(editor))
    shell.run("SELECT n FROM clicks \\e")
    assert shell.runner.draft == "SELECT n FROM other"
    monkeypatch.setenv("EDITOR", "/nowhere/editor")
    with pytest.raises(CommandFailed):
        shell.run("\\e")
    shell.runner.interactive = False
    with pytest.raises(CommandFailed, match="needs a terminal"):
        shell.run("\\e")


def test_settings_are_shown_and_changed_and_mistakes_are_said(shell: Shell) -> None:
    assert " keys     | emacs | emacs, vi" in "\n".join(shell.run("\\set"))
    assert shell.run("\\set keys vi\n\\set keys") == ["vi"]
    assert shell.run("set cli wrap on;\n\\set cut") == ["off"]
    assert shell.run("SET CLI  COLUMN-WIDTH  12;\n\\set width") == ["12"]
    for wrong in (
        "\\set keys dvorak", "\\set pager maybe", "\\set kes vi", "set cli colour red;", "set cli column-width x;",
        "set cli column-width -1;", "\\set limit 2147483648",
    ):  # fmt: skip
        with pytest.raises(BadSetting):
            shell.run(wrong)


def test_secrets_of_statements_are_not_kept(shell: Shell) -> None:
    history = open_history()
    secret = "hunter'2"
    for text in (
        "CREATE SOURCE CONNECTOR c WITH (\n 'connector.class'='p',\n \"database.password\" = '{}', 'tables'='t');",
        "alter connector c ('Api-Key'='{}');", "SET 'sasl.jaas.config'='{}';", "DEFINE db_password = '{}';",
        "CREATE SINK CONNECTOR c WITH ('pasword' '{}', 'topics'='t');", "CREATE SINK CONNECTOR c WITH ('secret'='{}",
        "CREATE SOURCE CONNECTOR c WITH ('connection.url'='postgresql://ada:{}@db/shop');",
    ):  # fmt: skip
        history.store_string(text.format(secret.replace("'", "") if "://" in text else secret))
    kept = history_file().read_text()
    assert "hunter" not in kept
    assert kept.count("********") == 6 and "postgresql://ada@db/shop" in kept
    assert "'tables'='t'" in kept and "'topics'='t'" in kept, "what is no secret is kept"
    history.store_string("SELECT * FROM t WHERE token = 'a';")
    assert typed_entries()[-1] == "SELECT * FROM t WHERE token = 'a';"
    assert shell.run("history 1;") == ["SELECT * FROM t WHERE token = 'a';"]


def test_passwords_of_urls_are_not_kept(shell: Shell) -> None:
    history = open_history()
    history.store_string("\\c http://ada:secret@127.0.0.1:1")
    history.store_string("SHOW\nTABLES;")
    assert "secret" not in history_file().read_text()
    assert typed_entries() == ["\\c http://ada@127.0.0.1:1", "SHOW\nTABLES;"]
    assert shell.run("history 1;") == ["SHOW", "TABLES;"]
    assert os.stat(history_file()).st_mode & 0o077 == 0


@pytest.mark.parametrize("command", ["history {};", "\\s {}", "\\set width {}", "\\set limit {}"])
@pytest.mark.parametrize("number", ["99999999999999999999", "9" * 5_000])
def test_numbers_that_are_too_large_are_refused(shell: Shell, command: str, number: str) -> None:
    with pytest.raises(BadSetting, match="is no number from 0 to 2147483647"):
        shell.run(command.format(number))


def test_no_entries_are_shown_if_none_are_wanted(shell: Shell) -> None:
    open_history().store_string("SHOW TABLES;")
    assert shell.run("history 0;") == []
