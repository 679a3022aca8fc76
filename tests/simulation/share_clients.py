"""Workers of a share group in a simulated cluster: they acquire records, decide about them, crash and fall asleep.

What they are told has to hold (I26): an accepted record is never delivered again, no record is with two workers at
once, each delivery of a record has a larger count, and nothing is passed over. The records are numbers: who reads them
is not the coordinator's affair.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from millstream.logcore.cores.group_messages import ConsumerBeat, GroupFault
from millstream.logcore.cores.share_groups import ShareHeartbeat
from millstream.logcore.cores.share_partition import Verdict
from millstream.logcore.cores.share_settings import DELIVERIES, LOCK_MS
from millstream.logcore.log_settings import of_group
from millstream.logcore.replication.controller.controller_messages import ChangeSettings, CreateTopic
from millstream.logcore.replication.machine import BROKER, CONTROLLER
from millstream.logcore.replication.replica.replica_messages import PartitionId
from millstream.logcore.replication.shards.coordination_messages import ForGroup, place_of
from millstream.logcore.replication.shards.share_messages import (
    AcknowledgeRecords,
    AcquireRecords,
    AskShareOffsets,
    LeaderView,
    LookForRecords,
    ReadOffsets,
    RecordsAcknowledged,
    RecordsAcquired,
    RecordsFound,
    ShareOffsets,
    Verdicts,
)
from millstream.logcore.topic_rules import GROUPS_TOPIC

from .kernel import MILLISECOND, InvariantViolated, Kernel
from .sightings import Sighting

if TYPE_CHECKING:
    from .cluster_world import ClusterWorld

FIRST_SHARE_REQUEST: Final = 1 << 58
GROUP: Final = "Workers"
_LOCK_MS: Final = 1_500
_SESSION_MS: Final = 3_000
_TIMEOUT_MS: Final = 1_000
_DELIVERIES: Final = 5
_RECORDS: Final = 150
_SETTINGS: Final = ((DELIVERIES, str(_DELIVERIES)), (LOCK_MS, str(_LOCK_MS)))


class _Hold(NamedTuple):
    """Who has a record, and since when."""

    member_id: str
    since: Sighting


class ShareChecks:
    """State: what workers were told of each record, and what they have said of it."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.accepted: set[int] = set()
        self.decided: set[int] = set()  # somebody has accepted or rejected it, whether that was heard or not
        self.attempts: dict[int, int] = defaultdict(int)
        self._deliveries: dict[int, int] = defaultdict(int)
        self._held: dict[int, _Hold] = {}
        self._beats: dict[str, Sighting] = {}  # the heartbeats of members that were answered last

    def beaten(self, member_id: str, sighting: Sighting) -> None:
        self._beats[member_id] = sighting

    def gives_up(self, member_id: str, offset: int | None = None) -> None:
        """The worker is about to say something of the record, or of none any more: from now on others may have it."""
        for each in list(self._held) if offset is None else [offset]:
            if each in self._held and self._held[each].member_id == member_id:
                del self._held[each]

    def acquired(self, member_id: str, offset: int, deliveries: int, sighting: Sighting) -> None:
        if offset in self.accepted:
            raise InvariantViolated("I26", f"record {offset} was accepted, and {member_id} gets it")
        if not self._deliveries[offset] < deliveries <= _DELIVERIES:
            before = self._deliveries[offset]
            raise InvariantViolated("I26", f"delivery {deliveries} of record {offset}, after {before}")
        self._deliveries[offset] = deliveries
        hold = self._held.get(offset)
        if hold is not None and hold.member_id != member_id and self._surely_has(hold):
            raise InvariantViolated("I26", f"{member_id} gets record {offset}, which {hold.member_id} has")
        self._held[offset] = _Hold(member_id, sighting)

    def _surely_has(self, hold: _Hold) -> bool:
        beat = self._beats.get(hold.member_id)
        is_member = beat is not None and beat.surely_holds(self._kernel, _SESSION_MS)
        return is_member and hold.since.surely_holds(self._kernel, _LOCK_MS)

    def passed_over(self, start_offset: int) -> None:
        """The group has come so far."""
        for offset in range(start_offset):
            if offset not in self.decided and self.attempts[offset] < _DELIVERIES:
                raise InvariantViolated(
                    "I26", f"record {offset} was passed over after {self.attempts[offset]} attempts"
                )


class Worker:
    """One request at a time. State: its name in the group, and what it has."""

    def __init__(self, traffic: ShareTraffic, number: int) -> None:
        self._traffic = traffic
        self._number = number
        self._lives = 0
        self._epoch = 0
        self._beat_ns = -1
        self._has: list[int] = []

    @property
    def member_id(self) -> str:
        return f"worker-{self._number}.{self._lives}"

    def act(self, *_: object) -> None:
        traffic, chance = self._traffic, self._traffic.random.random()
        if not traffic.healed and chance < 0.04:
            self._crash()
        elif not traffic.healed and chance < 0.06:
            traffic.later(self.act, mean_ms=2_500)
        elif self._epoch == 0 or traffic.now_ns - self._beat_ns > _SESSION_MS * MILLISECOND // 4:
            self._beat()
        elif self._has:
            self._decide()
        elif chance > 0.95 or traffic.is_empty:
            traffic.send(AskShareOffsets(), self._asked_offsets)
        else:
            self._look()

    def _crash(self) -> None:
        """Nobody says that it is gone."""
        self._traffic.checks.gives_up(self.member_id)
        self._lives, self._epoch, self._has = self._lives + 1, 0, []
        self._traffic.later(self.act, mean_ms=500)

    def _beat(self) -> None:
        topics = ("events",) if self._epoch == 0 else None
        beat = ShareHeartbeat(GROUP, self.member_id, self._epoch, "worker", "host", topics, _SESSION_MS)
        self._beat_ns = self._traffic.now_ns
        self._traffic.send(beat, self._beaten)

    def _beaten(self, answer: Any) -> None:
        if isinstance(answer, ConsumerBeat):
            self._epoch = answer.epoch if answer.fault is GroupFault.NONE else 0
        self._traffic.later(self.act)

    def _look(self) -> None:
        self._traffic.send(LookForRecords((LeaderView(self._traffic.place, 0, 0),)), self._found)

    def _found(self, answer: Any) -> None:
        traffic = self._traffic
        if not isinstance(answer, RecordsFound) or not answer.known or not 0 <= answer.places[0].first < traffic.end:
            traffic.grow()
            traffic.later(self.act)
            return
        first = answer.places[0].first
        last = min(first + traffic.random.choice([0, 1, 4]), traffic.end - 1)
        for offset in range(first, last + 1):
            traffic.checks.attempts[offset] += 1
        read = (ReadOffsets(traffic.place, ((first, last, False),)),)
        traffic.send(AcquireRecords(self.member_id, 3, True, read), self._acquired)

    def _acquired(self, answer: Any) -> None:
        """At the end nobody holds a record longer than the lock lasts, for then all has to be done in bounded time."""
        if isinstance(answer, RecordsAcquired):
            self._has = [at for first, last, _ in answer.acquired[0].spans for at in range(first, last + 1)]
        mean_ms = self._traffic.random.choice([20, 20, 2_000])
        self._traffic.later(self.act, mean_ms=20 if self._traffic.healed else mean_ms)

    def _decide(self) -> None:
        """About each one by itself; some time, it says nothing of the rest."""
        traffic = self._traffic
        choice = [Verdict.ACCEPT] if traffic.healed else [*[Verdict.ACCEPT] * 4, Verdict.RELEASE, Verdict.REJECT]
        verdicts = [(offset, traffic.random.choice(choice)) for offset in self._has]
        for offset, verdict in verdicts:
            traffic.checks.gives_up(self.member_id, offset)
            if verdict is not Verdict.RELEASE:
                traffic.checks.decided.add(offset)
        self._has = []
        batches = tuple((offset, offset, (int(verdict),)) for offset, verdict in verdicts)
        traffic.send(AcknowledgeRecords(self.member_id, (Verdicts(traffic.place, batches),)), self._decided)

    def _decided(self, _: Any) -> None:
        self._traffic.later(self.act)

    def _asked_offsets(self, answer: Any) -> None:
        if isinstance(answer, ShareOffsets) and answer.offsets:
            self._traffic.start_offset = max(self._traffic.start_offset, answer.offsets[0].start_offset)
        self._traffic.later(self.act)


class _Asked(NamedTuple):
    body: Any
    answered: Any
    sighting: Sighting


class ShareTraffic:
    """The share group of a run, and the requests of its workers. Nothing where the seed has none."""

    counters: ClassVar[tuple[str, ...]] = ("records accepted", "records delivered again", "acceptances that came late")

    def __init__(self, world: ClusterWorld, workers: int) -> None:
        self.world = world
        self.kernel = world.kernel
        self.random = Random(f"{world.kernel.seed}/shares")  # no draw of others is shifted
        self.checks = ShareChecks(self.kernel)
        self.healed = False
        self.end = 0
        self.start_offset = 0
        self._number = FIRST_SHARE_REQUEST
        self._asked: dict[int, _Asked] = {}
        self._heard: dict[int, _Asked] = {}
        self._workers = [Worker(self, number) for number in range(workers)]

    @property
    def now_ns(self) -> int:
        return self.kernel.now_ns

    @property
    def place(self) -> PartitionId:
        return PartitionId(self.world.topic or "", 0)

    @property
    def is_empty(self) -> bool:
        return self.healed and self.start_offset < self.end == _RECORDS and self.random.random() < 0.3

    def grow(self) -> None:
        self.end = min(self.end + self.random.choice([1, 3, 6]), _RECORDS)

    def begin(self) -> None:
        if self._workers:
            self._prepare()

    def _prepare(self) -> None:
        """Until the metadata say that the topic is there, and the settings."""
        image = self.world.image()
        known = image.configs.get(of_group(GROUP), {})
        if GROUPS_TOPIC in image.topic_ids and known == dict(_SETTINGS):
            for worker in self._workers:
                worker.act()
            return
        create = CreateTopic(GROUPS_TOPIC, 2, 3, configs=(("min.insync.replicas", "2"),))
        wanted = create if GROUPS_TOPIC not in image.topic_ids else ChangeSettings(of_group(GROUP), _SETTINGS)
        self._number += 1
        node = self.random.choice(list(self.world.simulation.hosts))
        self.world.simulation.hosts[node].ask(CONTROLLER, self._number, wanted)
        self.kernel.schedule(300 * MILLISECOND, self._prepare)

    def later(self, action: Any, mean_ms: float = 60.0) -> None:
        self.kernel.schedule(int(self.random.expovariate(1.0) * mean_ms * MILLISECOND), action)

    def send(self, body: Any, answered: Any) -> None:
        """To the coordinator, as a node picked by chance knows it; `answered(None)` after the time-out."""
        self._number += 1
        number, random = self._number, self.random
        asked = _Asked(body, answered, Sighting.now(self.kernel))
        self._asked[number] = self._heard[number] = asked
        node = self._believed_coordinator()
        if node is not None and random.random() > 0.02:
            delay = int(random.expovariate(1.0) * 2 * MILLISECOND)
            ask = self.world.simulation.hosts[node].ask
            self.kernel.schedule(delay, ask, BROKER, number, ForGroup(GROUP, body))
        self.kernel.schedule(_TIMEOUT_MS * MILLISECOND, self._answer, number, None)

    def _believed_coordinator(self) -> int | None:
        broker = self.world.broker(self.random.choice(list(self.world.simulation.hosts)))
        image = self.world.image() if broker is None or self.random.random() < 0.5 else broker.image
        place = place_of(image, GROUPS_TOPIC, GROUP)
        state = image.partition(place) if place is not None else None
        return state.leader if state is not None else None

    def replied(self, number: int, response: Any) -> None:
        """The coordinator has answered: from now on it is true, whoever hears it."""
        asked = self._heard.pop(number, None)
        if asked is None:
            return
        self._check(asked, response)
        if self.random.random() > 0.02:
            delay = int(self.random.expovariate(1.0) * 2 * MILLISECOND)
            self.kernel.schedule(delay, self._answer, number, response)

    def _answer(self, number: int, response: Any) -> None:
        asked = self._asked.pop(number, None)
        if asked is not None:
            asked.answered(response)

    def _check(self, asked: _Asked, response: Any) -> None:
        counters = self.kernel.counters
        match asked.body, response:
            case ShareHeartbeat(), ConsumerBeat(GroupFault.NONE, member_id):
                self.checks.beaten(member_id, asked.sighting)
            case AcquireRecords(member_id), RecordsAcquired(acquired):
                for first, last, deliveries in acquired[0].spans:
                    counters["records delivered again"] += deliveries > 1
                    for offset in range(first, last + 1):
                        self.checks.acquired(member_id, offset, deliveries, asked.sighting)
            case AcknowledgeRecords(_, (Verdicts(_, batches),)), RecordsAcknowledged((code,)):
                accepted = {first for first, _, verdict in batches if verdict == (Verdict.ACCEPT,)}
                counters["acceptances that came late"] += bool(code and accepted)
                if not code:
                    counters["records accepted"] += len(accepted)
                    self.checks.accepted |= accepted
            case AskShareOffsets(), ShareOffsets(_, (offset,)):
                self.checks.passed_over(offset.start_offset)
            case _:
                pass

    # The end

    def heal(self) -> None:
        self.healed = True

    def missing(self) -> str | None:
        if self._workers and not self.start_offset >= self.end == _RECORDS:
            return f"the share group is at {self.start_offset} of {self.end} records"
        return None
