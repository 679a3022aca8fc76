"""Removes what a dropped connector has left in the other system.

DROP CONNECTOR must work while that system is down or busy. But a replication slot that is left behind keeps WAL until
the disk is full. So a leftover has a record in the topic of positions until it is removed, and each engine that starts
keeps trying.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from millstream.errors import MillstreamError

from ...logcore.client import LogClient
from ...planner.connector_info import ConnectorInfo
from ...sql.identifiers import quote_identifier
from .connector import TaskInfo
from .connector_plugins import find_plugin
from .connector_secrets import Secrets
from .connector_settings import read_settings
from .leaving import LEAVES_S, TASK_THREADS, Departure, TaskReplaced, Tenure
from .task_positions import POSITIONS_TOPIC, position_record, read_leftovers

_AGAIN_S: Final = 0.5
_AGAIN_MAX_S: Final = 60.0
_SAID_AGAIN_S: Final = 3600.0
_log = structlog.get_logger("millstream.connect")


@dataclass(frozen=True, slots=True)
class Leftover:
    """The leftover of one dropped connector. `began`: whether one of its positions was ever committed."""

    number: str
    info: ConnectorInfo
    began: bool

    @property
    def task(self) -> TaskInfo:
        return TaskInfo(self.info.name, began=self.began)


def leftover(info: ConnectorInfo, *, began: bool) -> Leftover:
    return Leftover(f"left-{uuid.uuid4().hex}", info, began)


def note_leftover(log: LogClient, left: Leftover) -> None:
    """Writes the record of the leftover. Its secrets are encrypted, as in the catalog."""
    value = {"info": dataclasses.asdict(left.info), "began": left.began}
    log.append(POSITIONS_TOPIC, 0, position_record(left.info.name, left.number, value))


def known_leftovers(log: LogClient) -> list[Leftover]:
    return [
        Leftover(number, ConnectorInfo(**value["info"]), value["began"])
        for (_, number), value in read_leftovers(log).items()
    ]


def kept_at(info: ConnectorInfo, task: TaskInfo, secrets: Secrets) -> str | None:
    """What the connector keeps, and where; None if it keeps nothing important, or that is unknown."""
    try:
        loaded, settings = _loaded(info, secrets)
        return loaded.keeps(settings, task)
    except MillstreamError:
        return None


def _loaded(info: ConnectorInfo, secrets: Secrets) -> tuple[Any, Any]:
    """The class and its settings. Raises `InvalidConnector`."""
    plugin = find_plugin(info.config.get("connector.class"), info.kind)
    resolved = secrets.resolve(info.config, plugin.secret_names())
    loaded = plugin.load()
    return loaded, read_settings(loaded.settings, resolved)


class Removal(Departure):
    """Removes the leftover after the connector's tasks have ended. It tries until it succeeds if the leftover is
    important, otherwise once.

    In: `forgotten`: called when it is removed. State: why it is not removed yet.
    """

    def __init__(
        self, left: Leftover, secrets: Secrets, after: Sequence[Departure], forgotten: Callable[[Leftover], None]
    ) -> None:
        super().__init__(left.info.name, "")
        self._secrets = secrets
        self._after = after
        self._forgotten = forgotten
        self._tenure = Tenure()
        self._ended = threading.Event()
        self._said: tuple[str, float] | None = None
        self.left = left
        self.place = kept_at(left.info, left.task, secrets) if left.began else None
        what = "what the dropped connector has left in the other system"
        self.what = what if self.place is None else secrets.scrub(self.place)
        self._not_yet = f"{self.what} is not removed yet"
        self.waits_for = after[-1].waits_for if after else self._not_yet
        threading.Thread(target=self._run, name=f"{TASK_THREADS}{self.connector}-removal", daemon=True).start()

    @property
    def is_late(self) -> bool:
        """Whether an attempt has failed and it is still not removed, nor given up."""
        return self._said is not None and not self.is_over and not self._ended.is_set()

    def end(self) -> None:
        """Stops trying: the engine ends, and the next one continues, or it is given up."""
        self._ended.set()
        self._tenure.end()

    def _run(self) -> None:
        try:
            for each in self._after:
                each.wait(LEAVES_S)
            self.waits_for = self._not_yet
            self._remove()
        finally:  # otherwise a connector of this name would never begin
            self.finish()

    def _remove(self) -> None:
        wait_s = _AGAIN_S
        while not self._ended.is_set():
            try:
                loaded, settings = _loaded(self.left.info, self._secrets)
                loaded.forget(settings, dataclasses.replace(self.left.task, tenure=self._tenure))
                self._forgotten(self.left)
                return
            except TaskReplaced:
                return
            except Exception as error:
                self._note(self._secrets.scrub(" ".join(str(error).split())))
                if self.place is None:
                    return
            self._ended.wait(wait_s)
            wait_s = min(2 * wait_s, _AGAIN_MAX_S)

    def _note(self, reason: str) -> None:
        """Logs the reason, and repeats it every hour: DROP CONNECTOR has succeeded even if the other system is down."""
        before, now = self._said, time.monotonic()
        gives_up = f"DROP CONNECTOR {quote_identifier(self.connector)} WITH (leftovers='keep') gives it up"
        self.waits_for = f"{self._not_yet}: {reason}. It is tried again until it is gone; {gives_up}"
        if before is None or before[0] != reason or now - before[1] > _SAID_AGAIN_S:
            self._said = (reason, now)
            _log.warning(
                "a dropped connector left something behind",
                connector=self.connector, left=self.what, error=reason, again=self.place is not None,
            )  # fmt: skip
