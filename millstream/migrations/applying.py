"""Applies migrations: file by file, statement by statement. Each statement is recorded before it runs.

If the process ends after that, the outcome of the last recorded statement is unknown. Then the server's catalog shows
whether it ran (`traces.py`); if it cannot, the user decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from millstream.errors import MillstreamError, StatementError
from millstream.server.client import Client, DataClient, RemoteError
from millstream.sql.ast import (
    AssertSource,
    AssertValues,
    DefineVariable,
    Describe,
    Explain,
    PrintTopic,
    Query,
    RunScript,
    SetProperty,
    Show,
    ShowGraph,
    ShowLineage,
    Statement,
    UndefineVariable,
    UnsetProperty,
)
from millstream.sql.parser import parse
from millstream.sql.splitting import split_statements
from millstream.sql.variables import substitute_variables

from .files import BadMigration, Migration, MigrationProject
from .ledger import NONE, Event, Ledger, MigrationEvents, is_running, now_text
from .traces import has_run

Unclear = Literal["ask", "done", "again"]

_NOT_THE_STATEMENT = 50_000  # error codes from here on are the server's own
_ASSERTION_FAILED = "ASSERTION_FAILED"  # of an engine in this process

_OF_THE_SESSION = SetProperty | UnsetProperty | DefineVariable | UndefineVariable
_NOT_FOR_FILES = (
    Query | PrintTopic | RunScript | AssertValues | AssertSource | Show | ShowLineage | ShowGraph | Describe | Explain
)


class MigrationFailed(BadMigration):
    """A statement failed. The statements before it have run."""

    code = "MIGRATION_FAILED"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """A statement of a file: its number from 1, its text as written, and with variables substituted (`meant`)."""

    number: int
    text: str
    meant: str
    statement: Statement

    @property
    def is_local(self) -> bool:
        """Whether it changes only the session, and therefore has to run again in each session."""
        return isinstance(self.statement, _OF_THE_SESSION)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of the pending migrations to apply: exactly one field is set."""

    next: bool = False
    every: bool = False
    until: int | None = None
    version: int | None = None

    def of(self, pending: Sequence[Migration]) -> list[Migration]:
        if self.next:
            return list(pending[:1])
        if self.version is not None:
            return [migration for migration in pending if migration.version == self.version]
        return [migration for migration in pending if self.until is None or migration.version <= self.until]


class Migrator:
    """In: `open_client`: returns a client with a new session. `report`: receives progress lines."""

    def __init__(
        self,
        project: MigrationProject,
        open_client: Callable[[], DataClient],
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.project = project
        self._open_client = open_client
        self._report = report
        self._metadata = open_client()
        self.ledger = Ledger(self._metadata, project)

    def apply(
        self,
        selection: Selection,
        variables: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
        resume: bool = False,
        unclear: Unclear = "ask",
    ) -> list[Migration]:
        """Applies the selected migrations and returns them. In: `resume`: a migration recorded as running is not.

        Raises `BadMigration` before anything runs, `MigrationFailed` if a statement fails.
        """
        events = self.ledger.read()
        self._check_running(events, resume)
        problems = self.problems(events)
        if problems:
            raise problems[0]
        migrations = self.project.migrations()
        pending = [migration for migration in migrations if migration.version > events.current()]
        for missed in (each for each in migrations if each.version < events.current() and not events.of(each.version)):
            self._report(f"{missed.path.name} is skipped: version {events.current()} is applied already")
        chosen = selection.of(pending)
        if selection.version is not None and not chosen:
            raise BadMigration(f"version {selection.version} is not pending")
        plans = [(migration, list(steps_of(migration, variables or {}))) for migration in chosen]
        for migration, steps in plans:
            if dry_run:
                self._show(migration, steps, self._first(migration, steps, events, unclear))
            else:
                self._claimed(migration, steps, variables or {}, resume=resume, unclear=unclear)
        return chosen

    def problems(self, events: MigrationEvents) -> list[BadMigration]:
        """What is wrong with applied migrations: their files are missing or have changed."""
        files = {migration.version: migration for migration in self.project.migrations()}
        found: list[BadMigration] = []
        for key, event in sorted(events.by_key.items()):
            if not key.isdecimal() or event.state != "MIGRATED":
                continue
            file = files.get(int(key))
            if file is None:
                gone = f"version {key} ({event.name}) was applied, but its file is missing"
                found.append(BadMigration(gone, hint="Put the file back."))
            elif file.checksum != event.checksum:
                changed = (
                    f"{file.path.name} was changed after it was applied: its checksum is {file.checksum}, and was "
                    f"{event.checksum}"
                )
                found.append(BadMigration(changed, hint="Undo the change, and put it into a new migration."))
        return found

    def _check_running(self, events: MigrationEvents, resume: bool) -> None:
        running = [key for key, event in events.by_key.items() if key.isdecimal() and event.state == "RUNNING"]
        if running and not resume:
            raise is_running(running[0])

    def _show(self, migration: Migration, steps: Sequence[MigrationStep], first: int) -> None:
        self._report(f"would apply {migration.path.name}{_part(first)}")
        for step in steps[first - 1 :]:
            self._report(f"  {step.number}: {step.meant};")

    def _claimed(
        self,
        migration: Migration,
        steps: Sequence[MigrationStep],
        variables: Mapping[str, str],
        *,
        resume: bool,
        unclear: Unclear,
    ) -> None:
        """Runs the migration if no other process does, nor has run it since the events were read."""
        event = Event(
            str(migration.version), str(migration.version), migration.name, "RUNNING", migration.checksum, now_text()
        )
        claim = self.ledger.claim(event, resume=resume)
        try:
            with self.ledger.beating(event, claim, self._open_client):
                self._apply(migration, steps, event, claim, variables, unclear)
        except BadMigration:  # after another error the outcome is unknown, and the migration is still running
            self.ledger.release(event, claim)
            raise
        self.ledger.release(event, claim)

    def _apply(
        self,
        migration: Migration,
        steps: Sequence[MigrationStep],
        event: Event,
        claim: str,
        variables: Mapping[str, str],
        unclear: Unclear,
    ) -> None:
        events = self.ledger.read()
        if events.state_of(migration.version) == "MIGRATED":
            self._report(f"{migration.path.name} is skipped: another process has applied it")
            return
        first = self._first(migration, steps, events, unclear)
        current = events.current()
        began = replace(event, previous=str(current) if current else NONE)
        self._run(migration, steps, began, claim, variables, first)

    def _run(
        self,
        migration: Migration,
        steps: Sequence[MigrationStep],
        event: Event,
        claim: str,
        variables: Mapping[str, str],
        first: int,
    ) -> None:
        self._report(f"applying {migration.path.name}{_part(first)}")
        self.ledger.state(event)
        client = self._open_client()
        try:
            for name, value in variables.items():
                client.define(name, value)
            for step in steps:
                if step.is_local:
                    client.execute(f"{step.text};")
                elif step.number >= first:
                    self._check_claim(migration, event, claim)
                    self._step(client, step, steps, migration, event)
        finally:
            client.close()
        self._check_claim(migration, event, claim)
        self.ledger.state(replace(event, state="MIGRATED", completed_on=now_text()))
        self._report(f"applied {migration.path.name}")

    def _check_claim(self, migration: Migration, event: Event, claim: str) -> None:
        if not self.ledger.holds(event, claim):
            raise BadMigration(
                f"{migration.path.name} is now applied by another process, which took over with --resume",
                hint="This one was not heard of for a while. `millstream migrate info` shows how far the other is.",
            )

    def _step(
        self, client: Client, step: MigrationStep, steps: Sequence[MigrationStep], migration: Migration, event: Event
    ) -> None:
        self.ledger.progress(event, step.number, _digest(steps[: step.number]))
        try:
            client.execute(f"{step.text};")
        except MillstreamError as error:
            if not _refuses(error):
                raise  # the outcome is unknown
            message = f"{migration.path.name}, statement {step.number}: {error.message}"
            first, _, _ = message.partition("\n")
            self.ledger.progress(event, step.number, _digest(steps[: step.number - 1]), failed=first)
            self.ledger.state(replace(event, state="ERROR", completed_on=now_text(), error_reason=first))
            raise MigrationFailed(
                message, hint="Fix the statement and apply again: the statements before it are not repeated."
            ) from error

    def _first(
        self, migration: Migration, steps: Sequence[MigrationStep], events: MigrationEvents, unclear: Unclear
    ) -> int:
        """The number of the first statement to run."""
        progress = events.progress_of(migration.version)
        if progress is None:
            return 1
        # A failed statement may have been changed since; one that may have run must be unchanged.
        settled = progress.statement - 1 if progress.failed else progress.statement
        if settled > len(steps) or _digest(steps[:settled]) != progress.digest:
            raise BadMigration(
                f"{migration.path.name} was changed in its first {settled} statements, which have run already",
                hint="Restore them, with the same variables: only statements that have not run may change.",
            )
        if progress.failed:
            return progress.statement
        step = steps[progress.statement - 1]
        ran = has_run(step.statement, step.meant, self._metadata)
        if ran is None and unclear == "ask":
            raise BadMigration(
                f"it is unknown whether statement {step.number} of {migration.path.name} has run: {step.meant[:100]}",
                hint="Check its effect, then add --statement-done or --statement-again.",
            )
        done = ran if ran is not None else unclear == "done"
        return progress.statement + 1 if done else progress.statement


def steps_of(migration: Migration, variables: Mapping[str, str]) -> Iterator[MigrationStep]:
    """The statements of a file. Raises `BadMigration` for invalid SQL, for statements that change nothing and for an
    empty file: once applied, it could not be filled any more."""
    if not migration.text.strip():
        raise BadMigration(
            f"{migration.path.name} is empty", hint="Write its statements, or a comment if it is to change nothing."
        )
    known = {name.upper(): value for name, value in variables.items()}
    for number, text in enumerate(split_statements(migration.text), 1):
        try:
            meant = substitute_variables(text, known)
            (statement,) = parse(f"{meant};")
        except MillstreamError as error:
            raise BadMigration(f"{migration.path.name}, statement {number}: {error.message}", hint=error.hint) from None
        if isinstance(statement, _NOT_FOR_FILES):
            raise BadMigration(f"{migration.path.name}, statement {number}: {meant.split()[0].upper()} changes nothing",
                               hint="A migration has statements that change the server.")  # fmt: skip
        if isinstance(statement, DefineVariable):
            known[statement.name.upper()] = statement.value
        elif isinstance(statement, UndefineVariable):
            known.pop(statement.name.upper(), None)
        yield MigrationStep(number, text, meant, statement)


def _part(first: int) -> str:
    return f", from statement {first} on" if first > 1 else ""


def _refuses(error: MillstreamError) -> bool:
    """Whether the server has refused the statement, and so has not run it."""
    if isinstance(error, RemoteError):
        return error.error_code < _NOT_THE_STATEMENT
    return isinstance(error, StatementError) or error.code == _ASSERTION_FAILED


def _digest(steps: Sequence[MigrationStep]) -> str:
    """A digest of the substituted statements, without spaces and comments between them."""
    return hashlib.md5("\0".join(step.meant for step in steps).encode(), usedforsecurity=False).hexdigest()
