"""Runs the mirrors of the catalog in this process. Each mirror is one task, like that of a connector, with a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Final, cast

import structlog

from millstream.errors import LogError, MillstreamError

from ...logcore.client import LogClient
from ...logcore.clients.routed_log import RoutedLog
from ...logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from ...logcore.mirrors.mirror_board import MirrorBoard
from ...logcore.mirrors.mirror_errors import InvalidMirror, MirrorOfItself
from ...logcore.mirrors.mirror_source import MirrorSource
from ...logcore.mirrors.mirror_target import MirrorLog
from ...logcore.mirrors.mirrored_topics import release_topics
from ...logcore.mirrors.own_log import check_is_another
from ...logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings
from ...planner.mirror_info import MirrorInfo
from .connector_secrets import Secrets
from .leaving import Departure, LeavingTasks
from .mirror_settings import MirrorSettings, mirror_settings
from .secret_vault import KnownSecrets
from .task_worker import Ending, TaskState, TaskStatus, TaskWorker

_LAST_PASS_S: Final = 10.0
_STEP_S: Final = 0.1
_FIRST_LOOK_S: Final = 2.0

Mirror = ExactMirror | RenamedMirror
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """`board`: partitions, lag and throughput since the start here. `task`: None if the mirror does not run."""

    state: TaskState
    board: MirrorBoard
    task: TaskStatus | None

    @property
    def error(self) -> str | None:
        """What holds up the whole mirror, or else a part of it."""
        return (self.task.error if self.task is not None else None) or self.board.error


MIRROR_STATES: Final = ("RUNNING", "DEGRADED", "PAUSED", "FAILED", "STOPPED", "PROMOTED")


def state_of_mirror(info: MirrorInfo, status: MirrorStatus) -> str:
    """One of `MIRROR_STATES`. A DEGRADED mirror copies everything except what a user has to fix."""
    if info.state == "PROMOTED":
        return info.state
    board = status.board
    needs_somebody = board.refused or any(each.phase == "STOPPED" for each in board.partitions.values())
    return "DEGRADED" if status.state == "RUNNING" and needs_somebody else status.state


class Mirrors:
    """Any thread may call any method, but calls that change the same mirror must not overlap."""

    def __init__(self, log: LogClient, known_secrets: KnownSecrets) -> None:
        self.known_secrets = known_secrets
        self._log = log
        self._running: dict[str, _RunningMirror] = {}
        self._changing: dict[str, MirrorBoard] = {}
        self._closed = False
        self._ending = Ending()
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def changing(self, name: str) -> Generator[None]:
        """Wraps a statement's change of the mirror, which may take long. Raises `InvalidMirror` if another statement is
        changing it."""
        with self._guard:
            if name in self._changing:
                raise InvalidMirror(f"another statement is changing the mirror {name}", hint="Try again in a moment.")
            self._changing[name] = MirrorBoard()
        try:
            yield
        finally:
            with self._guard:
                del self._changing[name]

    def check_source(self, info: MirrorInfo) -> None:
        """Checks that the source is another log. If the source does not answer now, there is no error yet. Raises
        `MirrorOfItself`."""
        settings = settings_of_mirror(info, Secrets(self.known_secrets))
        source = MirrorSource(settings.source, patience_s=_FIRST_LOOK_S)
        try:
            check_is_another(mirror_log(self._log), source, settings.topics)
        except MirrorOfItself:
            raise
        except LogError as error:
            _log.info("the source of a mirror does not answer yet", mirror=info.name, error=error.message)
        finally:
            source.close()

    def become(self, info: MirrorInfo) -> None:
        """Runs, pauses or ends the mirror, as the catalog now says. Raises `LogError`."""
        if info.state == "PROMOTED":
            self.drop(info.name)
            return
        running = self._found(info.name)
        if running is None:
            self.begin_anew(info)
        elif info.state == "PAUSED":
            running.worker.pause()
        else:
            running.worker.resume()
            running.worker.restart()

    def begin_anew(self, info: MirrorInfo) -> None:
        """Starts the mirror again, with the current values to which its settings refer. The new task waits until the
        previous one has ended; this call does not wait."""
        with self._guard:
            leaving = self._running.pop(info.name, None)
        before = () if leaving is None else leaving.left_by()
        if info.state == "PROMOTED" or self._closed:
            return
        running = _RunningMirror(self._log, info, Secrets(self.known_secrets), before)
        with self._guard:
            self._running[info.name] = running
        running.worker.start()

    def last_pass(self, info: MirrorInfo) -> str | None:
        """Stops the mirror, then copies everything that the source has now, including offsets of groups. Out: what is
        missing, if the source does not answer or is still written to; else None. Call it within `changing`."""
        self.stop(info.name)
        board, secrets = self._changing[info.name], Secrets(self.known_secrets)
        try:
            mirror = _opened(self._log, info, secrets, board)
        except MillstreamError as error:
            return secrets.scrub(error.message)
        try:
            deadline = time.monotonic() + _LAST_PASS_S
            while not mirror.is_level():
                mirror.step(_STEP_S)
                if time.monotonic() > deadline:
                    return f"{board.lag} offsets of the source were not here after {_LAST_PASS_S:.0f} s"
            mirror.look()
        except MillstreamError as error:
            return secrets.scrub(error.message)
        finally:
            mirror.close()
        return board.error

    def drop(self, name: str) -> None:
        """Drops the mirror, also if it does not run. From now on everybody may write to its topics. Raises
        `LogError`."""
        self.stop(name)
        if self._log.capabilities.copies:
            released = release_topics(mirror_log(self._log), name)
            if released:
                _log.info("mirror has let go of topics", mirror=name, topics=", ".join(released))

    def status(self, info: MirrorInfo) -> MirrorStatus:
        running = self._found(info.name)
        if running is None:
            return MirrorStatus("STOPPED", self._changing.get(info.name, MirrorBoard()), None)
        task = running.worker.status()
        return MirrorStatus(task.state, running.board, task)

    def ask_to_stop(self) -> None:
        """Asks all mirrors to stop, before `close`; returns at once."""
        self._ending.begin()
        with self._guard:
            self._closed = True
            running = list(self._running.values())
        for each in running:
            each.worker.ask_to_stop()

    def close(self) -> None:
        """Stops all mirrors; they continue from there when they are started again. It takes no longer than `Ending`
        allows."""
        self.ask_to_stop()
        with self._guard:
            running, self._running = list(self._running.values()), {}
        for each in running:
            each.worker.stop(self._ending.left_s)

    def stop(self, name: str) -> None:
        """Stops the mirror until `begin_anew`. Waits for its current step."""
        with self._guard:
            running = self._running.pop(name, None)
        if running is not None:
            running.worker.stop()

    def _found(self, name: str) -> _RunningMirror | None:
        with self._guard:
            return self._running.get(name)


class _RunningMirror:
    """One running mirror: its task and its board."""

    def __init__(self, log: LogClient, info: MirrorInfo, secrets: Secrets, before: Sequence[Departure]) -> None:
        """In: `before`: the departures for which its task waits."""
        self.board = MirrorBoard()
        self._before = before
        self.worker = TaskWorker(
            info.name, 0, self._opening(log, info, secrets), secrets, paused=info.state == "PAUSED", before=before
        )

    def left_by(self) -> Sequence[Departure]:
        """Asks the mirror to end. Out: the departures for which its successor has to wait."""
        self.worker.ask_to_stop()
        return *(each for each in self._before if not each.is_over), LeavingTasks(self.worker.name, (self.worker,))

    def _opening(self, log: LogClient, info: MirrorInfo, secrets: Secrets) -> Callable[[], Mirror]:
        return lambda: _opened(log, info, secrets, self.board)


def settings_of_mirror(info: MirrorInfo, secrets: Secrets) -> MirrorSettings:
    """The settings of the mirror. Raises `InvalidMirrorSetting`; `InvalidConnector` if a reference cannot be
    resolved."""
    return mirror_settings(info, secrets.resolve(info.config))


def mirror_log(log: LogClient) -> MirrorLog:
    """The log as one to which copies can be written. Raises `InvalidMirror` if it does not accept copies."""
    if not log.capabilities.copies:
        raise InvalidMirror("this log takes no copies: it belongs to others")
    assert hasattr(log, "append_copies") or isinstance(log, RoutedLog), "a log of a kind that takes no copies"
    return cast(MirrorLog, log)


def _opened(log: LogClient, info: MirrorInfo, secrets: Secrets, board: MirrorBoard) -> Mirror:
    settings = settings_of_mirror(info, secrets)
    target, source = mirror_log(log), MirrorSource(settings.source)
    try:
        return _mirror(target, source, settings, board)
    except BaseException:
        source.close()
        raise


def _mirror(target: MirrorLog, source: MirrorSource, settings: MirrorSettings, board: MirrorBoard) -> Mirror:
    name, topics, groups = settings.name, settings.topics, settings.groups
    if settings.mode == "exact":
        exact = ExactMirrorSettings(name, topics, groups, settings.adopts, settings.look_ms, settings.acls)
        return ExactMirror(target, source, exact, board)
    renamed = RenamedMirrorSettings(
        name, settings.alias, settings.target, topics, groups, settings.commits, settings.look_ms, settings.acls
    )
    return RenamedMirror(target, source, renamed, board)
