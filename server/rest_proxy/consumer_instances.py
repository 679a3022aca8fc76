"""Consumer instances of v2: a consumer of a group that stays on the server between the requests of its client.

Only one request at a time uses an instance. An unused instance expires, and leaves its group.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from millstream.errors import LogError

from ...logcore.client import Isolation, TopicPartition
from ...logcore.clients.consumer import Consumer, Reset
from ...logcore.cores.patterns import NamePattern
from ...logcore.topic_rules import COORDINATORS, belongs_to_millstream
from ..http.errors import TOO_MANY_REQUESTS, RequestRefused
from ..security.rights import Rights
from .embedded_formats import EmbeddedFormat
from .proxied_log import SharedLog
from .proxy_errors import ILLEGAL_STATE, INSTANCE_EXISTS, INSTANCE_NOT_FOUND, ProxyRefusal
from .proxy_settings import RestProxySettings

_SESSION_MS: Final = 10_000
_SWEEP_S: Final = 1.0
_PATTERN_S: Final = 5.0
"""How often topics are matched against a pattern."""
_EXCLUSIVE: Final = "Subscription to topics, partitions and pattern are mutually exclusive"

_log = structlog.get_logger("millstream.server")


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """`bytes_min`: a read waits for this many bytes; `wait_ms_max`: but at most this long."""

    format: EmbeddedFormat = EmbeddedFormat.BINARY
    reset: Reset = "latest"
    auto_commit: bool = True
    bytes_min: int = 1
    wait_ms_max: int = 1000
    isolation: Isolation = "read_committed"


def no_instance() -> ProxyRefusal:
    return ProxyRefusal(INSTANCE_NOT_FOUND, "Consumer instance not found.")


def illegal_state(message: str) -> ProxyRefusal:
    return ProxyRefusal(ILLEGAL_STATE, f"Illegal state: {message}")


class ConsumerInstance:
    """State: the consumer, its subscription, and whether a request uses it. Only the caller inside `used` may call its
    methods."""

    def __init__(
        self, log: SharedLog, group: str, name: str, rights: Rights, settings: InstanceSettings, now: float
    ) -> None:
        self.group, self.name, self.rights, self.settings = group, name, rights, settings
        self.last_used = now
        self.ending = threading.Event()
        self.consumer = Consumer(
            log,
            group,
            reset=settings.reset,
            isolation=settings.isolation,
            commit_every_ms=5_000 if settings.auto_commit else None,
            session_timeout_ms=_SESSION_MS,
        )
        self._log = log
        self._use = threading.Lock()
        self._topics: tuple[str, ...] = ()
        self._pattern: NamePattern | None = None
        self._assigned = False
        self._next_look = 0.0

    @contextlib.contextmanager
    def used(self, clock: Callable[[], float]) -> Generator[None]:
        """Raises `ProxyRefusal` if another request uses the instance. If the instance ends meanwhile, the user closes
        it."""
        if not self._use.acquire(blocking=False):
            raise illegal_state("another request uses the consumer instance")
        try:
            if self.ending.is_set():
                raise no_instance()
            yield
        finally:
            self.last_used = clock()
            self._use.release()
            if self.ending.is_set():
                self.end()

    def end(self) -> None:
        """Closes the consumer, now or when the current request releases it. It leaves its group; with automatic
        commits, it commits its positions first. May be called twice."""
        self.ending.set()
        if not self._use.acquire(blocking=False):
            return  # the current user checks `ending` when it releases the instance
        try:
            self.consumer.close()
        except LogError as error:
            _log.warning("consumer instance not ended well", group=self.group, instance=self.name, error=error.message)
        finally:
            self._use.release()

    @property
    def in_use(self) -> bool:
        return self._use.locked()

    # Subscription

    @property
    def subscription(self) -> tuple[str, ...]:
        return self._topics

    @property
    def reads_something(self) -> bool:
        return bool(self._topics) or self._assigned or self._pattern is not None

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Raises `ProxyRefusal`, `LogError`."""
        self._check_not_assigned()
        self._pattern, self._topics = None, tuple(dict.fromkeys(topics))
        self.consumer.subscribe(self._topics)

    def subscribe_pattern(self, pattern: NamePattern) -> None:
        """Raises `ProxyRefusal`, `LogError`."""
        self._check_not_assigned()
        self._pattern, self._next_look = pattern, 0.0
        self.look_for_topics(0.0)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Raises `ProxyRefusal`, `LogError`."""
        if self._topics or self._pattern is not None:
            raise illegal_state(_EXCLUSIVE)
        self._assigned = bool(partitions)
        self.consumer.assign(partitions)

    def unsubscribe(self) -> None:
        """Leaves the group, and removes all assignments."""
        self._topics, self._pattern, self._assigned = (), None, False
        self.consumer.close()

    def _check_not_assigned(self) -> None:
        if self._assigned:
            raise illegal_state(_EXCLUSIVE)

    def look_for_topics(self, now: float) -> None:
        """Subscribes to the topics that match the pattern now and that the instance's user may read."""
        if self._pattern is None or now < self._next_look:
            return
        self._next_look = now + _PATTERN_S
        pattern = self._pattern
        names = (topic.name for topic in self._log.cluster.topics())
        fitting = tuple(name for name in names if self._may_fit(name) and pattern.fits(name))
        if fitting != self._topics:
            self._topics = fitting
            self.consumer.subscribe(fitting)

    def _may_fit(self, name: str) -> bool:
        own = belongs_to_millstream(name) or name in COORDINATORS
        return not own and self.rights.may("read", name)

    # Positions

    def check_assigned(self, partition: TopicPartition) -> None:
        """Raises `ProxyRefusal`."""
        if partition not in self.consumer.assignment:
            raise illegal_state(f"No current assignment for partition {partition.topic}-{partition.partition}")

    def go_back(self, positions: Mapping[TopicPartition, int]) -> None:
        """Resets the positions after a read whose records were not delivered. In: where that read began."""
        for where in self.consumer.assignment & positions.keys():
            self.consumer.seek(where, positions[where])


class ConsumerInstances:
    """Any thread may call any method. In: `clock`: seconds; only differences matter."""

    def __init__(
        self, log: SharedLog, settings: RestProxySettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log, self._settings, self.clock = log, settings, clock
        self._guard = threading.Lock()
        self._instances: dict[tuple[str, str], ConsumerInstance] = {}
        self._closed = threading.Event()
        self._sweeper: threading.Thread | None = None

    def create(self, group: str, name: str | None, rights: Rights, settings: InstanceSettings) -> ConsumerInstance:
        """In: `name`: None: a generated one. Raises `ProxyRefusal`, `RequestRefused` if there are too many."""
        chosen = name or f"rest-consumer-{uuid.uuid4()}"
        self.expire()
        with self._guard:
            if (group, chosen) in self._instances:
                message = "Consumer with specified consumer ID already exists in the specified consumer group."
                raise ProxyRefusal(INSTANCE_EXISTS, message)
            if len(self._instances) >= self._settings.consumers_max or self._closed.is_set():
                raise RequestRefused(
                    TOO_MANY_REQUESTS,
                    f"{self._settings.consumers_max} consumer instances exist already",
                    hint="Delete some, or raise rest_proxy_consumers_max.",
                )
            made = ConsumerInstance(self._log, group, chosen, rights, settings, self.clock())
            self._instances[group, chosen] = made
            if self._sweeper is None:
                self._sweeper = threading.Thread(target=self._sweep, name="millstream-rest-expiry", daemon=True)
                self._sweeper.start()
        return made

    def find(self, group: str, name: str, rights: Rights) -> ConsumerInstance:
        """An instance of another user or an expired one counts as missing. Raises `ProxyRefusal`."""
        self.expire()
        with self._guard:
            found = self._instances.get((group, name))
        if found is None or not rights.is_own(found.rights.name):
            raise no_instance()
        found.last_used = self.clock()
        return found

    def delete(self, group: str, name: str, rights: Rights) -> None:
        """Deletes an instance and ends its running read; the reader then closes it. Raises `ProxyRefusal`."""
        found = self.find(group, name, rights)
        with self._guard:
            self._instances.pop((group, name), None)
        found.end()

    def expire(self) -> int:
        """Ends the expired instances, and returns their number."""
        oldest = self.clock() - self._settings.consumer_timeout_s
        with self._guard:
            over = [key for key, each in self._instances.items() if each.last_used <= oldest and not each.in_use]
            ended = [self._instances.pop(key) for key in over]
        for instance in ended:
            _log.info("consumer instance expired", group=instance.group, instance=instance.name)
            instance.end()
        return len(ended)

    def __len__(self) -> int:
        return len(self._instances)

    def stop_reads(self) -> None:
        """Makes reads end soon, and refuses new ones."""
        self._closed.set()
        with self._guard:
            for instance in self._instances.values():
                instance.ending.set()

    def close(self) -> None:
        self.stop_reads()
        if self._sweeper is not None:
            self._sweeper.join()
        with self._guard:
            ended, self._instances = list(self._instances.values()), {}
        for instance in ended:
            instance.end()

    def _sweep(self) -> None:
        while not self._closed.wait(_SWEEP_S):
            self.expire()
