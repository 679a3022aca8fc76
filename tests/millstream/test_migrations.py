"""Migrations: files, metadata, going on after a failure, and after a process that died in the middle."""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from emptied import drop_everything
from running_server import ServerProcess, service_in
from typer.testing import CliRunner

from millstream.cli import app
from millstream.errors import MillstreamError
from millstream.migrations import ledger
from millstream.migrations.applying import MigrationFailed, Migrator, Selection
from millstream.migrations.files import BadMigration, MigrationProject, create_file, load_project, new_project
from millstream.server.client import DataClient, LocalClient, connect
from millstream.server.engine.embedded import EmbeddedEngine, open_engine
from millstream.server.engine.session import Session

ALL = Selection(every=True)
STREAM = "CREATE STREAM s{} (id INT KEY, v INT) WITH (kafka_topic='s{}', value_format='JSON', partitions=1);\n"


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedEngine]:
    with open_engine(tmp_path_factory.mktemp("data"), {"millstream.executor": "duckdb"}, sync="never") as opened:
        yield opened


@pytest.fixture
def engine(started: EmbeddedEngine) -> Iterator[EmbeddedEngine]:
    yield started
    drop_everything(started)


@pytest.fixture
def project(tmp_path: Path) -> MigrationProject:
    new_project(tmp_path / "project", "http://127.0.0.1:1")
    return load_project(tmp_path / "project" / "ksql-migrations.properties")


@pytest.fixture(autouse=True)
def silent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has ended in a test is known to have ended."""
    monkeypatch.setattr(ledger, "SILENT_MS", 0)


class Killed(BaseException):
    """The process ends here."""


class Dying:
    """A client that dies around the n-th statement that is given to it, before or after it ran."""

    def __init__(self, client: DataClient, at: int, *, after: bool) -> None:
        self._client = client
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def execute(self, text: str) -> list[dict[str, Any]]:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Killed
        answer = self._client.execute(text)
        if self._left == 0:
            raise Killed
        return answer


def client_of(engine: EmbeddedEngine) -> LocalClient:
    return LocalClient(engine, Session(), address="here", close=lambda: None)


def migrator(engine: EmbeddedEngine, project: MigrationProject) -> Migrator:
    made = Migrator(project, lambda: client_of(engine))
    made.ledger.initialize()
    return made


def write(project: MigrationProject, version: int, text: str, name: str = "step") -> Path:
    path = project.migrations_folder / f"V{version:06d}__{name}.sql"
    path.write_text(text)
    return path


def streams(engine: EmbeddedEngine) -> set[str]:
    return set(engine.catalog.sources) - {"MIGRATION_EVENTS", "MIGRATION_SCHEMA_VERSIONS"}


def test_a_new_project_has_a_properties_file_and_a_folder_and_is_made_once(tmp_path: Path) -> None:
    new_project(tmp_path / "p", "http://here:1")
    project = load_project(tmp_path / "p" / "ksql-migrations.properties")
    assert project.server == "http://here:1"
    assert project.migrations() == []
    with pytest.raises(BadMigration, match="exists already"):
        new_project(tmp_path / "p", "http://here:1")


def test_the_properties_file_may_name_a_user_and_another_folder(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    config = tmp_path / "k.properties"
    config.write_text(
        f"# ours\nksql.server.url = http://here:1\nksql.auth.basic.username: ada\nksql.auth.basic.password p@ss\n"
        f"ksql.migrations.dir.override={tmp_path / 'elsewhere'}\nssl.alpn=true\n"
    )
    project = load_project(config)
    assert project.server == "http://ada:p%40ss@here:1"
    assert project.migrations_folder == tmp_path / "elsewhere"
    assert project.ignored == ("ssl.alpn",)


def test_files_are_numbered_one_after_the_other(project: MigrationProject) -> None:
    assert create_file(project, "add users").name == "V000001__add_users.sql"
    assert create_file(project, "then more", 7).name == "V000007__then_more.sql"
    assert create_file(project, "last").name == "V000008__last.sql"
    with pytest.raises(BadMigration, match="version 7 exists already"):
        create_file(project, "again", 7)


@pytest.mark.parametrize("name", ["V1__a.sql", "V000000__a.sql", "a.sql"])
def test_a_file_that_is_no_migration_is_named(project: MigrationProject, name: str) -> None:
    (project.migrations_folder / name).touch()
    with pytest.raises(BadMigration, match=f"{name} is no name of a migration"):
        project.migrations()


def test_what_cannot_be_read_or_made_is_said_in_a_sentence(project: MigrationProject) -> None:
    folder = project.migrations_folder / "V000001__a.sql"
    folder.mkdir()
    with pytest.raises(BadMigration, match=r"V000001__a.sql cannot be read: is a directory"):
        project.migrations()
    folder.rmdir()
    with pytest.raises(BadMigration, match="cannot be created: file name too long"):
        create_file(project, "x" * 300)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ksql.server.url=\xff", "is not UTF-8: invalid start byte at byte 16"),
        (b"ksql.server.url=here:1\nksql.migrations.topic.replicas=two", 'replicas is "two", not a number'),
    ],
)
def test_a_wrong_properties_file_is_said_in_a_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "p").write_bytes(content)
    with pytest.raises(BadMigration, match=message):
        load_project(tmp_path / "p")


def test_a_user_goes_with_a_server_without_a_scheme(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("ksql.server.url=here:1\nksql.auth.basic.username=ada\n")
    assert load_project(tmp_path / "p").server == "http://ada:@here:1"


def test_pending_migrations_run_in_order_and_only_once(engine: EmbeddedEngine, project: MigrationProject) -> None:
    for version in (1, 2, 3):
        write(project, version, STREAM.format(version, version))
    runs = migrator(engine, project)
    assert [each.version for each in runs.apply(Selection(next=True))] == [1]
    assert [each.version for each in runs.apply(Selection(until=2))] == [2]
    assert streams(engine) == {"S1", "S2"}
    assert [each.version for each in runs.apply(ALL)] == [3]
    assert runs.apply(ALL) == []
    events = runs.ledger.read()
    assert events.current() == 3
    event = events.of(3)
    assert event is not None
    assert (event.state, event.previous, event.name) == ("MIGRATED", "2", "step")
    content = STREAM.format(3, 3).encode()
    assert event.checksum == hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_a_version_below_the_current_one_is_left_out_and_said(
    engine: EmbeddedEngine, project: MigrationProject
) -> None:
    write(project, 2, "CREATE TYPE b AS INT;")
    migrator(engine, project).apply(Selection(every=True))
    write(project, 1, "CREATE TYPE a AS INT;")
    said: list[str] = []
    assert Migrator(project, lambda: client_of(engine), said.append).apply(Selection(every=True)) == []
    assert said == ["V000001__step.sql is skipped: version 2 is applied already"]


def test_the_metadata_is_that_of_ksql_migrations(engine: EmbeddedEngine, project: MigrationProject) -> None:
    write(project, 1, STREAM.format(1, 1))
    migrator(engine, project).apply(ALL)
    stream, table = engine.catalog.sources["MIGRATION_EVENTS"], engine.catalog.sources["MIGRATION_SCHEMA_VERSIONS"]
    columns = "VERSION_KEY VERSION NAME STATE CHECKSUM STARTED_ON COMPLETED_ON PREVIOUS ERROR_REASON".split()
    assert [column.name for column in stream.schema] == columns
    assert [column.name for column in table.schema] == columns
    assert stream.topic == "default_ksql_MIGRATION_EVENTS"


def test_a_dry_run_prints_what_it_would_run_and_runs_nothing(engine: EmbeddedEngine, project: MigrationProject) -> None:
    write(project, 1, "DEFINE n = 's1';\n" + STREAM.format("${m}", "${n}"))
    lines: list[str] = []
    runs = Migrator(project, lambda: client_of(engine), lines.append)
    runs.ledger.initialize()
    runs.apply(ALL, {"m": "9"}, dry_run=True)
    assert lines[0] == "would apply V000001__step.sql"
    assert "CREATE STREAM s9" in lines[2]
    assert streams(engine) == set()
    assert runs.ledger.read().current() == 0


def test_after_a_failure_in_the_middle_the_next_run_goes_on_there(
    engine: EmbeddedEngine, project: MigrationProject
) -> None:
    good = "SET 'auto.offset.reset'='earliest';\n" + STREAM.format(1, 1) + "INSERT INTO s1 VALUES (1, 2);\n"
    last = "CREATE TABLE t AS SELECT id, COUNT(*) AS n FROM {} GROUP BY id;"
    write(project, 1, good + last.format("nowhere"))
    write(project, 2, STREAM.format(2, 2))
    runs = migrator(engine, project)
    with pytest.raises(MigrationFailed, match=r"V000001__step.sql, statement 4: NOWHERE does not exist"):
        runs.apply(ALL)
    events = runs.ledger.read()
    assert (events.state_of(1), events.state_of(2), events.current()) == ("ERROR", "PENDING", 0)
    write(project, 1, good + "-- mended\n" + last.format("s1"))
    assert [each.version for each in runs.apply(ALL)] == [1, 2]
    assert streams(engine) == {"S1", "S2", "T"}
    (count,) = engine.query("SELECT COUNT(*) FROM s1;", Session({"millstream.pull.full.sql": "true"}))
    assert count.values == (1,)  # the INSERT did not run again
    # The query began with what was SET before the failure.
    (query,) = engine.catalog.writers_of("T")
    assert query.plan.properties["auto.offset.reset"] == "earliest"


def test_what_has_run_may_not_change_and_spaces_do_not_count(engine: EmbeddedEngine, project: MigrationProject) -> None:
    write(project, 1, STREAM.format(1, 1) + "DROP STREAM nowhere;")
    runs = migrator(engine, project)
    with pytest.raises(MigrationFailed):
        runs.apply(ALL)
    write(project, 1, STREAM.format(2, 2) + STREAM.format(3, 3))
    with pytest.raises(BadMigration, match="was changed in its first 1 statements, which have run already"):
        runs.apply(ALL)
    write(project, 1, "\n\n" + STREAM.format(1, 1) + "/* */ " + STREAM.format(3, 3))
    runs.apply(ALL)
    assert streams(engine) == {"S1", "S3"}


def test_a_changed_or_lost_file_of_an_applied_migration_stops_everything(
    engine: EmbeddedEngine, project: MigrationProject
) -> None:
    path = write(project, 1, STREAM.format(1, 1))
    runs = migrator(engine, project)
    runs.apply(ALL)
    write(project, 2, STREAM.format(2, 2))
    path.write_text(STREAM.format(1, 1) + " ")
    (problem,) = runs.problems(runs.ledger.read())
    assert "V000001__step.sql was changed after it was applied" in problem.message
    with pytest.raises(BadMigration, match="was changed after it was applied"):
        runs.apply(ALL)
    path.unlink()
    (problem,) = runs.problems(runs.ledger.read())
    assert (problem.message, problem.hint) == (
        "version 1 (step) was applied, but its file is missing",
        "Put the file back.",
    )
    assert streams(engine) == {"S1"}


@pytest.mark.parametrize("text", [
        "SELECT * FROM s;", "PRINT t;", "CREATE STREM s;", "DROP STREAM ${nobody};", "SHOW STREAMS;", "DESCRIBE s2;",
        "EXPLAIN SELECT * FROM s2;", "ASSERT VALUES s2 (id) VALUES (1);",
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_before_anything_runs(
    engine: EmbeddedEngine, project: MigrationProject, text: str
) -> None:
    write(project, 1, STREAM.format(1, 1))
    write(project, 2, STREAM.format(2, 2) + text)
    runs = migrator(engine, project)
    with pytest.raises(BadMigration, match=r"V000002__step.sql, statement 2: "):
        runs.apply(ALL)
    assert streams(engine) == set()


def test_an_empty_file_is_refused_as_its_statements_could_not_be_added_later(
    engine: EmbeddedEngine, project: MigrationProject
) -> None:
    write(project, 1, STREAM.format(1, 1))
    write(project, 2, " \n")
    runs = migrator(engine, project)
    with pytest.raises(BadMigration, match=r"V000002__step.sql is empty"):
        runs.apply(ALL)
    assert streams(engine) == set()
    write(project, 2, "-- nothing to do\n")
    runs.apply(ALL)
    assert streams(engine) == {"S1"}
    assert runs.problems(runs.ledger.read()) == []


def test_a_migration_may_wait_for_topics(engine: EmbeddedEngine, project: MigrationProject) -> None:
    write(project, 1, STREAM.format(1, 1) + "ASSERT TOPIC s1 TIMEOUT 1 SECONDS;\n" + STREAM.format(2, 2))
    migrator(engine, project).apply(ALL)
    write(project, 2, "ASSERT NOT EXISTS TOPIC s1 TIMEOUT 1 SECONDS;\n" + STREAM.format(3, 3))
    with pytest.raises(MigrationFailed, match=r"V000002__step.sql, statement 1: "):
        migrator(engine, project).apply(ALL)
    assert streams(engine) == {"S1", "S2"}


TRACES = (
    STREAM.format(1, 1),
    "CREATE STREAM copied AS SELECT * FROM base;",
    "INSERT INTO base SELECT * FROM other;",
    "DROP STREAM old;",
    "ALTER STREAM base ADD COLUMN w STRING;",
    "CREATE TYPE point AS STRUCT<x INT, y INT>;",
    "DROP TYPE gone;",
    "CREATE SECRET made ('password'='hunter2');",
    "DROP SECRET kept;",
    "DELETE FROM counted WHERE id = 1;",
)
BASE = (
    "CREATE STREAM base (id INT KEY, v INT) WITH (kafka_topic='b', value_format='JSON', partitions=1);\n"
    "CREATE STREAM other (id INT KEY, v INT) WITH (kafka_topic='o', value_format='JSON', partitions=1);\n"
    "CREATE STREAM old (id INT KEY, v INT) WITH (kafka_topic='old', value_format='JSON', partitions=1);\n"
    "CREATE TABLE counted (id INT PRIMARY KEY, v INT) WITH (kafka_topic='c', value_format='JSON', partitions=1);\n"
    "CREATE TYPE gone AS STRUCT<x INT>;\n"
    "CREATE SECRET kept ('password'='hunter2');\n"
)


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        *((statement, True) for statement in TRACES),
        (TRACES[0], False),
        (TRACES[2], False),
        (TRACES[-3], False),
        (TRACES[-2], False),
    ],
)
def test_a_run_that_died_at_a_statement_goes_on_there(
    engine: EmbeddedEngine, project: MigrationProject, statement: str, after: bool
) -> None:
    engine.execute(BASE, Session())
    write(project, 1, STREAM.format(8, 8) + statement + STREAM.format(9, 9))
    migrator(engine, project)
    clients = iter([client_of(engine), Dying(client_of(engine), 2, after=after)])
    with pytest.raises(Killed):
        Migrator(project, lambda: next(clients)).apply(ALL)  # pyrefly: ignore[bad-argument-type]
    again = Migrator(project, lambda: client_of(engine))
    with pytest.raises(BadMigration, match="version 1 is recorded as running"):
        again.apply(ALL)
    again.apply(ALL, resume=True)
    assert {"S8", "S9"} <= streams(engine)
    assert again.ledger.read().state_of(1) == "MIGRATED"


@pytest.mark.parametrize("after", [False, True])
def test_an_insert_of_which_nobody_knows_asks(engine: EmbeddedEngine, project: MigrationProject, after: bool) -> None:
    write(project, 1, STREAM.format(1, 1) + "INSERT INTO s1 VALUES (1, 2);" + STREAM.format(2, 2))
    migrator(engine, project)
    clients = iter([client_of(engine), Dying(client_of(engine), 2, after=after)])
    with pytest.raises(Killed):
        Migrator(project, lambda: next(clients)).apply(ALL)  # pyrefly: ignore[bad-argument-type]
    again = Migrator(project, lambda: client_of(engine))
    with pytest.raises(BadMigration, match=r"it is unknown whether statement 2 .* has run") as asked:
        again.apply(ALL, resume=True)
    assert asked.value.hint == "Check its effect, then add --statement-done or --statement-again."
    again.apply(ALL, resume=True, unclear="done" if after else "again")
    (count,) = engine.query("SELECT COUNT(*) FROM s1;", Session({"millstream.pull.full.sql": "true"}))
    assert count.values == (1,)
    assert "S2" in streams(engine)


class Interrupted:
    """A client at whose n-th recorded event, before it is written, another process has its turn."""

    def __init__(self, client: DataClient, at: int, turn: Callable[[], object]) -> None:
        self._client = client
        self._left = at
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def insert(self, name: str, rows: pa.Table) -> int:
        self._left -= 1
        if self._left == 0:
            self._turn()
        return self._client.insert(name, rows)


@pytest.mark.parametrize("at", range(1, 5))
def test_of_two_processes_at_once_one_applies_a_migration(
    engine: EmbeddedEngine, project: MigrationProject, at: int
) -> None:
    write(project, 1, STREAM.format(1, 1))
    migrator(engine, project)
    refused: list[str] = []

    def other() -> None:
        try:
            Migrator(project, lambda: client_of(engine)).apply(ALL)
        except BadMigration as error:
            refused.append(error.message)

    clients = iter([Interrupted(client_of(engine), at, other), client_of(engine)])
    said: list[str] = []
    Migrator(project, lambda: next(clients), said.append).apply(ALL)  # pyrefly: ignore[bad-argument-type]
    assert said[-1:] == [
        "V000001__step.sql is skipped: another process has applied it" if at == 1 else "applied V000001__step.sql"
    ]
    assert refused == ([] if at == 1 else ["version 1 is recorded as running"])
    assert migrator(engine, project).ledger.read().state_of(1) == "MIGRATED"
    assert migrator(engine, project).apply(ALL) == []


@pytest.mark.parametrize("at", [1, 2])
def test_of_two_processes_that_resume_at_once_one_goes_on(
    engine: EmbeddedEngine, project: MigrationProject, at: int
) -> None:
    write(project, 1, STREAM.format(1, 1) + STREAM.format(2, 2))
    migrator(engine, project)
    dying = iter([client_of(engine), Dying(client_of(engine), 2, after=False)])
    with pytest.raises(Killed):
        Migrator(project, lambda: next(dying)).apply(ALL)  # pyrefly: ignore[bad-argument-type]
    other = Migrator(project, lambda: client_of(engine))
    clients = iter([Interrupted(client_of(engine), at, lambda: other.apply(ALL, resume=True)), client_of(engine)])
    Migrator(project, lambda: next(clients)).apply(ALL, resume=True)  # pyrefly: ignore[bad-argument-type]
    assert streams(engine) == {"S1", "S2"}
    assert migrator(engine, project).apply(ALL) == []


class Slow:
    """A client whose n-th statement runs only after another process has had its turn."""

    def __init__(self, client: DataClient, at: int, turn: Callable[[], object]) -> None:
        self._client = client
        self._left = at
        self._turn = turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def execute(self, text: str) -> list[dict[str, Any]]:
        self._left -= 1
        if self._left == 0:
            self._turn()
        return self._client.execute(text)


def clients_with(engine: EmbeddedEngine, *given: object) -> Callable[[], DataClient]:
    """Opens a client for the metadata, then the `given` ones, then further ones, as the beats need one."""
    clients = iter([client_of(engine), *given])
    return lambda: next(clients, client_of(engine))  # pyrefly: ignore[bad-return]


def test_a_migration_that_is_under_way_is_not_resumed_by_another_process(
    engine: EmbeddedEngine, project: MigrationProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "SILENT_MS", 60_000)
    monkeypatch.setattr(ledger, "BEAT_S", 0.1)
    write(project, 1, STREAM.format(1, 1) + STREAM.format(2, 2))
    migrator(engine, project)

    def other() -> None:
        with pytest.raises(BadMigration, match="another process is applying version 1") as refused:
            Migrator(project, lambda: client_of(engine)).apply(ALL, resume=True)
        assert refused.value.hint == "Wait until it has ended, or end it first."

    Migrator(project, clients_with(engine, Slow(client_of(engine), 2, other))).apply(ALL)
    assert streams(engine) == {"S1", "S2"}
    assert migrator(engine, project).ledger.read().state_of(1) == "MIGRATED"


def test_a_process_that_another_has_taken_over_from_runs_no_further_statement(
    engine: EmbeddedEngine, project: MigrationProject
) -> None:
    """It was suspended: no beat was written, and the other one took it for dead."""
    write(project, 1, STREAM.format(1, 1) + "INSERT INTO s1 VALUES (1, 2);" + "INSERT INTO s1 VALUES (1, 3);")
    migrator(engine, project)
    other = Migrator(project, lambda: client_of(engine))
    slow = Slow(client_of(engine), 2, lambda: other.apply(ALL, resume=True, unclear="done"))
    with pytest.raises(BadMigration, match="is now applied by another process"):
        Migrator(project, clients_with(engine, slow)).apply(ALL)
    (count,) = engine.query("SELECT COUNT(*) FROM s1;", Session({"millstream.pull.full.sql": "true"}))
    assert count.values == (2,)
    assert migrator(engine, project).ledger.read().state_of(1) == "MIGRATED"


def test_metadata_can_be_made_once_and_dropped(engine: EmbeddedEngine, project: MigrationProject) -> None:
    runs = Migrator(project, lambda: client_of(engine))
    with pytest.raises(BadMigration, match="no migration metadata"):
        runs.apply(ALL)
    assert runs.ledger.initialize()
    assert not runs.ledger.initialize()
    assert runs.ledger.destroy()
    assert not runs.ledger.destroy()
    assert not engine.catalog.sources
    assert not engine.catalog.queries


def test_the_commands_do_the_same_over_http(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    runner = CliRunner()

    def run(*arguments: str, code: int = 0) -> str:
        config = [] if arguments[0] == "new-project" else ["--config-file", str(folder / "ksql-migrations.properties")]
        result = runner.invoke(app, ["migrate", *arguments, *config])
        assert result.exit_code == code, result.output
        return result.output

    with service_in(tmp_path / "data") as service:
        run("new-project", str(folder), f"http://{service.http_address}")
        run("create", "first", "step")
        (folder / "migrations" / "V000001__first_step.sql").write_text(STREAM.format("${n}", "x"))
        assert "metadata created" in run("initialize-metadata")
        assert "one of --next" in run("apply", code=1)
        assert "has no value; DEFINE n = '…'; gives it one" in run("apply", "--all", code=1)
        assert "would apply" in run("apply", "--all", "--define", "n=1", "--dry-run")
        assert "applied V000001__first_step.sql" in run("apply", "--all", "-d", "n=1")
        info = run("info")
        assert "current version: 1" in info
        assert "MIGRATED" in info
        assert "unchanged" in run("validate")
        (folder / "migrations" / "V000001__first_step.sql").write_text("")
        assert "was changed after it was applied" in run("validate", code=1)
        config = str(folder / "ksql-migrations.properties")
        before = runner.invoke(app, ["migrate", "-c", config, "info"])
        assert "current version: 1" in before.output
        assert "exclude each other" in run("apply", "--all", "--next", code=1)
        (folder / "migrations" / "V000001__first_step.sql").unlink()
        assert "its file is missing; put the file back" in run("apply", "--all", code=1)
        assert "metadata dropped" in run("destroy-metadata")


def test_a_server_that_is_killed_in_the_middle_is_migrated_to_the_end_after_its_restart(
    tmp_path: Path, project: MigrationProject
) -> None:
    write(project, 1, "".join(STREAM.format(i, i) for i in range(1, 5)))
    with ServerProcess(tmp_path / "data") as server:
        Migrator(project, lambda: connect(server.url)).ledger.initialize()
        count = 0

        class Fatal(Dying):
            def execute(self, text: str) -> list[dict[str, Any]]:
                nonlocal count
                count += 1
                if count == 3:
                    server.stop(signal.SIGKILL)
                return self._client.execute(text)

        clients = iter([connect(server.url), Fatal(connect(server.url), 0, after=False)])
        with pytest.raises(MillstreamError):
            Migrator(project, lambda: next(clients)).apply(ALL)  # pyrefly: ignore[bad-argument-type]
    with ServerProcess(tmp_path / "data") as server:
        again = Migrator(project, lambda: connect(server.url))
        assert again.ledger.read().state_of(1) == "RUNNING"
        again.apply(ALL, resume=True)
        (shown,) = connect(server.url).execute("SHOW STREAMS;")
    assert {"S1", "S2", "S3", "S4"} <= {line["name"] for line in shown["streams"]}
