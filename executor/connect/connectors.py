"""Runs the connectors of the catalog in this process. Each connector has tasks, and each task has a thread."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from millstream.errors import MillstreamError

from ...logcore.client import LogClient
from ...logcore.errors import UnknownTopic
from ...planner.catalog import Catalog
from ...planner.connector_info import ConnectorInfo
from ..formats.wire import SchemaLookup
from .connector import Position, SinkConnector, SourceConnector, TaskInfo
from .connector_errors import InvalidConnector, UnknownConnectorTask
from .connector_plugins import ConnectorPlugin, find_plugin
from .connector_secrets import Secrets
from .connector_settings import SettingProblem, problems_of, read_settings
from .converters import converter_name, converter_of
from .dead_letters import is_tolerant
from .declarations import declarations_of
from .inbox import Inbox
from .leaving import Departure, LeavingTasks, Tenure
from .leftovers import Leftover, Removal, kept_at, known_leftovers, leftover, note_leftover
from .secret_vault import KnownSecrets
from .sink_runner import SinkRunner, Transcoder, group_of, reading, topics_problem
from .source_runner import SourceRunner, transactional_id
from .task_positions import (
    POSITIONS_TOPIC,
    create_positions_topic,
    position_record,
    read_leftovers,
    read_position,
    read_positions,
    sink_identity,
)
from .task_worker import Ending, TaskRunner, TaskState, TaskStatus, TaskWorker
from .transforms import routed, transforms_of

_TASKS_MAX: Final = 64
_SETTLES_S: Final = 2.0
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True, slots=True)
class ConnectorStatus:
    """`error`: why the connector has no tasks."""

    name: str
    state: TaskState
    tasks: tuple[TaskStatus, ...] = ()
    error: str | None = None


class Connectors:
    """Any thread may call any method, but calls that change the same connector must not overlap. No call waits for
    another system: stopped tasks end on their own threads, and `settled` waits for them for a short time."""

    def __init__(
        self,
        log: LogClient,
        transcoder: Transcoder,
        schemas: SchemaLookup,
        known_secrets: KnownSecrets,
        catalog: Callable[[], Catalog],
    ) -> None:
        """In: `transcoder`: converts columnar records for sinks; `schemas`: finds the schemas that their records name;
        `catalog`: declares the columns of topics."""
        self.known_secrets = known_secrets
        self._log = log
        self._transcoder = transcoder
        self._schemas = schemas
        self._catalog = catalog
        self._running: dict[str, _Running] = {}
        self._leaving: dict[str, tuple[Departure, ...]] = {}
        self._ending = Ending()
        self._guard = threading.Lock()

    def start(self, info: ConnectorInfo) -> None:
        """Starts the connector, or continues it from the committed positions. A running connector of this name is
        stopped first, so this also applies changed settings."""
        self.stop(info.name)
        secrets = Secrets(self.known_secrets)
        running = _Running(self._log, self._transcoder, self._schemas, info, secrets, self._catalog)
        place = kept_at(info, TaskInfo(info.name), secrets)
        with self._guard:
            self._running[info.name] = running
            leaving = [each for of in self._leaving.values() for each in of]
        running.begin([each for each in leaving if _goes_before(each, info.name, place)])

    def stop(self, name: str) -> None:
        """Asks the connector's tasks to end; positions are kept. Does nothing if the connector does not run."""
        with self._guard:
            running = self._running.pop(name, None)
            left = {of: tuple(each for each in tasks if not each.is_over) for of, tasks in self._leaving.items()}
            self._leaving = {of: tasks for of, tasks in left.items() if tasks}
            workers = () if running is None else running.workers
            for worker in workers:
                worker.ask_to_stop()
            if workers:
                self._leaving[name] = (*self._leaving.get(name, ()), LeavingTasks(name, workers))

    def take_up_leftovers(self) -> None:
        """Begins to remove what dropped connectors have left in other systems. Call it before any connector starts."""
        under_way = {each.left.number for each in self._removals()}
        for left in known_leftovers(self._log):
            if left.number not in under_way:
                self._begin_removal(left, Secrets(self.known_secrets))

    def leftovers(self) -> dict[str, str]:
        """What could not be removed from other systems so far: a clause for each dropped connector."""
        return {each.connector: each.waits_for for each in self._removals() if each.is_late}

    def give_up(self, name: str) -> list[str]:
        """Forgets what a dropped connector of this name has left and could not be removed, and says what it is."""
        late = [each for each in self._removals() if each.is_late and each.connector == name]
        for each in late:
            each.end()
            self._forgotten(each.left)
        return [each.what for each in late]

    def settled(self, names: Sequence[str], within_s: float = _SETTLES_S) -> dict[str, str]:
        """Waits until the previous tasks have ended. Out: by connector, what it still waits for after `within_s`."""
        deadline, left = time.monotonic() + within_s, dict[str, str]()
        for name, leaving in [(of, each) for of in names for each in self._leaving.get(of, ())]:
            if not leaving.wait(max(0.0, deadline - time.monotonic())):
                left[name] = leaving.waits_for
        return left

    def become(self, info: ConnectorInfo) -> None:
        """Pauses, stops or runs the connector as `info` says. The settings must be unchanged."""
        running = self._found(info.name)
        if info.stopped or not running.workers:
            self.start(info)
        elif info.paused:
            running.pause()
        else:
            running.resume()

    def set_positions(self, info: ConnectorInfo, positions: Mapping[int, Position | None]) -> None:
        """Sets the positions of the tasks of a stopped source. None: the task begins from the start."""
        create_positions_topic(self._log)
        begun = read_positions(self._log)
        loaded = find_plugin(info.config.get("connector.class"), info.kind).load()
        anew = loaded.anew if issubclass(loaded, SourceConnector) else None
        for number, at in positions.items():
            at = anew if at is None and (info.name, number) in begun else at
            producer = self._log.transactional_producer(transactional_id(info.name, number))  # fences the task
            producer.begin()
            producer.append(POSITIONS_TOPIC, 0, position_record(info.name, number, at))
            producer.commit()

    def restart(self, name: str, task: int | None = None) -> None:
        """Restarts all tasks, or one task if it has failed. Raises `UnknownConnectorTask`."""
        running = self._found(name)
        if task is None:
            self.start(running.info_now())
        else:
            running.restart(task)

    def resnapshot(self, info: ConnectorInfo, table: str | None) -> None:
        """Makes the source read all rows again, or those of one table. Raises `InvalidConnector`,
        `UnknownSourceTable`."""
        plugin, settings, config = resolved_settings(info, Secrets(self.known_secrets))
        loaded = plugin.load()
        if not issubclass(loaded, SourceConnector):
            raise InvalidConnector(f"{info.name} is a sink: it has no snapshot")

        def ends(topic: str) -> Mapping[str, int]:
            name = routed(topic, config)
            count = 0 if self._log.topic(name) is None else self._log.partition_count(name)
            return {str(number): self._log.offsets(name, number).log_end_offset for number in range(count)}

        positions = {number: at for (name, number), at in read_positions(self._log).items() if name == info.name}
        for at in positions.values():
            loaded.resnapshot(settings, at, table, ends)  # so that it raises before anything is stopped
        self._let_go(info.name)
        try:
            for number in positions:
                producer = self._log.transactional_producer(transactional_id(info.name, number))  # fences the task
                at = loaded.resnapshot(settings, read_position(self._log, info.name, number), table, ends)
                if at is not None:
                    producer.begin()
                    producer.append(POSITIONS_TOPIC, 0, position_record(info.name, number, at))
                    producer.commit()
        finally:
            self.start(info)

    def left_by(self, before: ConnectorInfo, after: ConnectorInfo) -> str | None:
        """What a connector keeps in the other system with its settings `before` and no longer finds with those `after`.
        It is not removed: the same place may have another name, and the connector may be altered back."""
        secrets, task = Secrets(self.known_secrets), TaskInfo(before.name)
        place = kept_at(before, task, secrets)
        if place is None or place == kept_at(after, task, secrets):
            return None
        began = any(name == before.name for name, _ in read_positions(self._log))
        return secrets.scrub(place) if began else None

    def drop(self, info: ConnectorInfo) -> None:
        """Drops the connector, also if it does not run. Deletes its positions and, after its tasks have ended, what it
        keeps in the other system."""
        self._let_go(info.name)
        secrets = Secrets(self.known_secrets)
        began = any(name == info.name for name, _ in read_positions(self._log))
        left = leftover(info, began=began)
        if began and kept_at(info, left.task, secrets) is not None:
            note_leftover(self._log, left)
        self.drop_positions(info.name)
        self._begin_removal(left, secrets)

    def drop_positions(self, connector: str) -> None:
        """Deletes the positions, so that a connector of this name begins from the start."""
        self._let_go(connector)
        if self._log.topic(POSITIONS_TOPIC) is not None:
            for name, task in read_positions(self._log):
                if name == connector:
                    self._log.append(POSITIONS_TOPIC, 0, position_record(name, task, None))
                    self._log.forget_producer(transactional_id(name, task))
        with contextlib.suppress(UnknownTopic):
            self._log.forget_group(group_of(connector))

    def status(self, name: str) -> ConnectorStatus:
        """Raises `UnknownConnectorTask`."""
        return self._found(name).status()

    def inbox(self, name: str) -> Inbox | None:
        """The inbox of a connector to which records are sent; None for others. Raises `UnknownConnectorTask`."""
        return self._found(name).inbox

    def ask_to_stop(self) -> None:
        """Asks all connectors to stop, before `close`; returns at once."""
        self._ending.begin()
        for removal in self._removals():
            removal.end()
        with self._guard:
            running = list(self._running.values())
        for each in running:  # they end in parallel
            each.ask_to_stop()

    def close(self) -> None:
        """Stops all connectors; they continue from there when they are started again. It takes no longer than `Ending`
        allows, however many of them wait for systems that do not answer."""
        self.ask_to_stop()
        with self._guard:
            running, self._running = list(self._running.values()), {}
            leaving = [each for of in self._leaving.values() for each in of]
        for each in running:
            each.stop(self._ending)
        for each in leaving:
            each.wait(self._ending.left_s)

    def _removals(self) -> list[Removal]:
        with self._guard:
            return [each for of in self._leaving.values() for each in of if isinstance(each, Removal)]

    def _begin_removal(self, left: Leftover, secrets: Secrets) -> None:
        name = left.info.name
        with self._guard:
            before = self._leaving.get(name, ())
            self._leaving[name] = (*before, Removal(left, secrets, before, self._forgotten))

    def _forgotten(self, left: Leftover) -> None:
        if (left.info.name, left.number) in read_leftovers(self._log):
            self._log.append(POSITIONS_TOPIC, 0, position_record(left.info.name, left.number, None))

    def _let_go(self, name: str) -> None:
        """As `stop`. In addition its tasks write nothing any more, even if they have not ended yet."""
        self.stop(name)
        for leaving in self._leaving.get(name, ()):
            leaving.let_go()

    def _found(self, name: str) -> _Running:
        with self._guard:
            found = self._running.get(name)
        if found is None:
            raise UnknownConnectorTask(f"connector {name} does not run here", hint="SHOW CONNECTORS lists them.")
        return found


class _Running:
    """One running connector. State: its tasks, or the reason why it has none."""

    def __init__(
        self,
        log: LogClient,
        transcoder: Transcoder,
        schemas: SchemaLookup,
        info: ConnectorInfo,
        secrets: Secrets,
        catalog: Callable[[], Catalog],
    ) -> None:
        self._log = log
        self._transcoder = transcoder
        self._schemas = schemas
        self._info = info
        self._paused = info.paused
        self._secrets = secrets
        self._catalog = catalog
        self.workers: tuple[TaskWorker, ...] = ()
        self._identity = threading.Lock()  # held by the task that reads or creates the sink's identity
        self._error: str | None = None
        self._own_inbox = Inbox()
        self.inbox: Inbox | None = None
        """The inbox of a connector to which records are sent; None for others."""

    def begin(self, before: Sequence[Departure]) -> None:
        """Starts the tasks. In: `before`: the departures that the tasks wait for."""
        if self._info.stopped:
            return
        try:
            shares = self._shares()
        except MillstreamError as error:
            self._error = self._secrets.scrub(error.message)
            _log.error("connector failed", connector=self._info.name, error=self._error)
            return
        self.workers = tuple(self._worker(number, share, before) for number, share in enumerate(shares))
        for worker in self.workers:
            worker.start()

    def info_now(self) -> ConnectorInfo:
        return replace(self._info, paused=self._paused)

    def pause(self) -> None:
        self._paused = True
        for worker in self.workers:
            worker.pause()

    def resume(self) -> None:
        self._paused = False
        for worker in self.workers:
            worker.resume()

    def restart(self, task: int) -> None:
        if not 0 <= task < len(self.workers):
            raise UnknownConnectorTask(f"connector {self._info.name} has no task {task}")
        self.workers[task].restart()

    def status(self) -> ConnectorStatus:
        tasks = tuple(worker.status() for worker in self.workers)
        state: TaskState = "FAILED" if self._error is not None else "PAUSED" if self._paused else "RUNNING"
        state = "STOPPED" if self._info.stopped else state
        return ConnectorStatus(self._info.name, state, tasks, self._error)

    def ask_to_stop(self) -> None:
        for worker in self.workers:
            worker.ask_to_stop()

    def stop(self, ending: Ending) -> None:
        for worker in self.workers:
            worker.stop(ending.left_s)

    def _shares(self) -> list[Mapping[str, Any]]:
        """The share of the work of each task. Raises `InvalidConnector`."""
        plugin, settings, resolved = resolved_settings(self._info, self._secrets)
        most = tasks_max(resolved)
        loaded = plugin.load()
        if issubclass(loaded, SourceConnector):
            self.inbox = self._own_inbox if loaded.is_sent_records else None
            return list(loaded.tasks(settings, most))
        return [{"of": most} for _ in range(most)]

    def _worker(self, number: int, share: Mapping[str, Any], before: Sequence[Departure]) -> TaskWorker:
        tenure = Tenure()
        opening = self._opening(TaskInfo(self._info.name, number, share, inbox=self._own_inbox, tenure=tenure))
        return TaskWorker(
            self._info.name, number, opening, self._secrets, paused=self._paused, tenure=tenure, before=before
        )

    def _opening(self, info: TaskInfo) -> Callable[[], TaskRunner]:
        def open_runner() -> TaskRunner:
            plugin, settings, resolved = resolved_settings(self._info, self._secrets)
            loaded, task = plugin.load(), info
            if issubclass(loaded, SourceConnector):
                source = loaded(settings, task)
                with _closed_on_error(source):
                    return SourceRunner(self._log, source, task, resolved)
            with self._identity, task.tenure:
                identity = sink_identity(self._log, self._info.name)
            task = replace(
                reading(task, self._log), identity=identity, declared=declarations_of(self._catalog, resolved)
            )
            sink = loaded(settings, task)
            with _closed_on_error(sink):
                return SinkRunner(self._log, sink, task, resolved, self._transcoder, self._schemas)

        return open_runner


@contextlib.contextmanager
def _closed_on_error(connector: SourceConnector | SinkConnector) -> Generator[None]:
    """Closes the connector if the block raises: no runner does it then, and it may hold a connection or an inbox."""
    try:
        yield
    except BaseException:
        connector.close()
        raise


def resolved_settings(info: ConnectorInfo, secrets: Secrets) -> tuple[ConnectorPlugin, Any, dict[str, str]]:
    """The plugin, its settings, and all settings with their references resolved. Raises `InvalidConnector`."""
    plugin = find_plugin(info.config.get("connector.class"), info.kind)
    resolved = secrets.resolve(info.config, plugin.secret_names())
    return plugin, read_settings(plugin.load().settings, resolved), resolved


def tasks_max(config: Mapping[str, str]) -> int:
    """The setting `tasks.max`. Raises `InvalidConnector`."""
    text = config.get("tasks.max", "1")
    if not text.isdecimal() or not 1 <= int(text) <= _TASKS_MAX:
        raise InvalidConnector(f'tasks.max is "{text}", but must be from 1 to {_TASKS_MAX}', setting="tasks.max")
    return int(text)


def config_problems(plugin: ConnectorPlugin, config: Mapping[str, str]) -> list[SettingProblem]:
    """What is wrong with the settings, including those that all connectors have. Connects to no other system."""
    found = problems_of(plugin.load().settings, config)
    checks: list[Callable[[Mapping[str, str]], object]] = [
        tasks_max,
        transforms_of,
        is_tolerant,
    ]
    read = converter_name if plugin.kind == "SINK" else converter_of
    checks += [lambda given: read(given, "key"), lambda given: read(given, "value")]
    if plugin.kind == "SINK":
        checks.append(topics_problem)
    for check in checks:
        try:
            check(config)
        except InvalidConnector as error:
            found.append(SettingProblem(error.setting or "connector.class", error.message, error.hint))
    if not found and not any("${" in value for value in config.values()):
        try:
            read_settings(plugin.load().settings, config)
        except InvalidConnector as error:
            found.append(SettingProblem(error.setting or "connector.class", error.message, error.hint))
    return found


def _goes_before(leaving: Departure, name: str, place: str | None) -> bool:
    """Whether the connector `name`, which keeps something at `place`, has to wait for this departure."""
    if isinstance(leaving, Removal) and leaving.place is not None and place is not None:
        return leaving.place == place
    return leaving.connector == name
