"""A consumer's membership in its group: joining, syncing and heartbeats. `consumer.py` reads the records.

Nothing here blocks for other members: `advance` checks for answers, so several consumers may share a thread.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from millstream.errors import LogError

from ..client import TopicPartition
from ..cores.group_messages import (
    CheckCommit,
    GroupFault,
    Heartbeat,
    Joined,
    JoinGroup,
    LeaveGroup,
    Leaving,
    Message,
    Reply,
    Sync,
    Synced,
)
from ..cores.group_messages import Protocol as GroupProtocol
from ..cores.subscriptions import (
    CONSUMER,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from .assignors import ASSIGNORS

_CLIENT_ID: Final = "millstream"
_TRY_AGAIN_S: Final = 0.1

_log = structlog.get_logger("millstream.logcore")


class GroupDesk(Protocol):
    """The coordinator that a member asks: in this process, or over the network."""

    def ask(self, message: Message) -> Future[Reply]: ...


@dataclass(frozen=True, slots=True)
class MembershipSettings:
    """`rebalance_timeout_ms`: how long the others wait for this member to join again when the group rebalances."""

    group: str
    instance_id: str | None = None
    assignor: str = "cooperative-sticky"
    session_timeout_ms: int = 45_000
    heartbeat_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000


class Membership:
    """State: member id and generation, the request in progress, and a thread that sends heartbeats meanwhile.

    One thread calls the methods; the thread of the heartbeats only sets flags.
    """

    def __init__(
        self,
        desk: GroupDesk,
        settings: MembershipSettings,
        partition_counts: Callable[[Sequence[str]], Mapping[str, int]],
    ) -> None:
        self._desk = desk
        self.settings = settings
        self._partition_counts = partition_counts
        self._topics: tuple[str, ...] = ()
        self._owned: tuple[TopicPartition, ...] = ()
        self.member_id = ""
        self.generation = -1
        self._joining: Future[Reply] | None = None
        self._syncing: Future[Reply] | None = None
        self._not_before = 0.0
        self._stable = False
        self._must_rejoin = threading.Event()
        self._lost = threading.Event()
        self._beating: threading.Thread | None = None
        self._closed = threading.Event()

    def subscribe(self, topics: Sequence[str]) -> None:
        self._topics = tuple(dict.fromkeys(topics))
        self._must_rejoin.set()

    @property
    def stable(self) -> bool:
        """False while the group rebalances, as far as this member knows."""
        return self._stable and not self._must_rejoin.is_set() and not self._lost.is_set()

    @property
    def joining(self) -> bool:
        return self._joining is not None or self._syncing is not None

    @property
    def lost(self) -> bool:
        """The group has removed this member, so others read its partitions now."""
        return self._lost.is_set()

    @property
    def check(self) -> CheckCommit:
        return CheckCommit(self.settings.group, self.generation, self.member_id, self.settings.instance_id)

    def ask_to_join(self, owned: Sequence[TopicPartition]) -> None:
        """Begins to join. In: `owned`: the partitions that this member reads now and wants to keep."""
        if self._lost.is_set():
            self.member_id, self.generation = "", -1
        self._must_rejoin.clear()
        self._lost.clear()
        self._stable = False
        self._owned = tuple(owned)
        metadata = encode_subscription(Subscription(self._topics, self._owned))
        self._joining = self._desk.ask(
            JoinGroup(
                self.settings.group,
                self.member_id,
                self.settings.instance_id,
                _CLIENT_ID,
                "",
                self.settings.session_timeout_ms,
                self.settings.rebalance_timeout_ms,
                CONSUMER,
                (GroupProtocol(self.settings.assignor, metadata),),
                f"{self.settings.instance_id or _CLIENT_ID}-{uuid.uuid4()}",
            )
        )

    def advance(self, timeout_s: float) -> tuple[TopicPartition, ...] | None:
        """The new assignment; None if it has not come within `timeout_s`. Raises `LogError`."""
        deadline = time.monotonic() + timeout_s
        while True:
            under_way = self._joining or self._syncing
            left_s = deadline - time.monotonic()
            if under_way is None:
                if self._not_before > time.monotonic():
                    if left_s <= 0:
                        return None
                    time.sleep(min(left_s, _TRY_AGAIN_S))
                    continue
                self.ask_to_join(self._owned)
                continue
            wait([under_way], max(0.0, left_s))
            if not under_way.done():
                return None
            self._joining = self._syncing = None  # a request that failed is sent again by the next call
            assignment = self._take(under_way.result())
            if assignment is not None:
                return assignment

    def _take(self, reply: Reply) -> tuple[TopicPartition, ...] | None:
        if isinstance(reply, Joined):
            self._take_joined(reply)
        elif isinstance(reply, Synced):
            if reply.fault is GroupFault.NONE:
                self._stable = True
                self._beat()
                return decode_assignment(reply.assignment)
            self._begin_anew(reply.fault)
        return None

    def _take_joined(self, joined: Joined) -> None:
        if joined.fault is not GroupFault.NONE:
            if joined.fault is GroupFault.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            else:
                self._begin_anew(joined.fault)
            return
        self.member_id, self.generation = joined.member_id, joined.generation
        leads = joined.leader_id == joined.member_id and not joined.skip_assignment
        plan = self._plan(joined) if leads else {}
        sync = Sync(
            self.settings.group,
            self.generation,
            self.member_id,
            self.settings.instance_id,
            joined.protocol_type,
            joined.protocol,
            plan,
        )
        self._syncing = self._desk.ask(sync)

    def _plan(self, joined: Joined) -> dict[str, bytes]:
        members = {member.member_id: decode_subscription(member.metadata) for member in joined.members}
        topics = sorted({topic for subscription in members.values() for topic in subscription.topics})
        assignor = ASSIGNORS[joined.protocol or self.settings.assignor]
        assignment = assignor(members, self._partition_counts(topics))
        return {member: encode_assignment(partitions) for member, partitions in assignment.items()}

    def _begin_anew(self, fault: GroupFault) -> None:
        """Prepares another attempt to join; raises `MembershipRefused` if the fault is permanent."""
        match fault:
            case GroupFault.UNKNOWN_MEMBER | GroupFault.ILLEGAL_GENERATION:
                self.member_id, self.generation = "", -1
            case GroupFault.REBALANCING | GroupFault.SHUTTING_DOWN:
                pass
            case _:
                raise MembershipRefused(
                    f'group "{self.settings.group}" does not take this member: {fault.value.replace("_", " ")}'
                )
        self._not_before = time.monotonic() + _TRY_AGAIN_S

    def leave(self) -> None:
        """Leaves the group, so that others take over at once. A static member does not leave: it is expected back."""
        self._closed.set()
        if self._beating is not None:
            self._beating.join()
        if self.member_id and self.settings.instance_id is None:
            leave = LeaveGroup(self.settings.group, (Leaving(self.member_id),))
            try:
                self._desk.ask(leave).result()
            except LogError as error:
                _log.warning("group not left", group=self.settings.group, error=error.message)

    def note_fault(self, fault: GroupFault) -> None:
        """Handles the answer to a commit or a heartbeat."""
        match fault:
            case GroupFault.REBALANCING:
                self._must_rejoin.set()
            case GroupFault.UNKNOWN_MEMBER | GroupFault.ILLEGAL_GENERATION | GroupFault.FENCED_INSTANCE:
                self._lost.set()
            case _:
                pass

    def _beat(self) -> None:
        if self._beating is None:
            self._beating = threading.Thread(target=self._keep_beating, name="millstream-heartbeat", daemon=True)
            self._beating.start()

    def _keep_beating(self) -> None:
        while not self._closed.wait(self.settings.heartbeat_ms / 1000):
            if not self._stable or self.joining or self._lost.is_set():
                continue
            beat = Heartbeat(self.settings.group, self.generation, self.member_id, self.settings.instance_id)
            try:
                reply = self._desk.ask(beat).result()
            except LogError as error:
                _log.warning("heartbeat not answered", group=self.settings.group, error=error.message)
                continue
            if (beat.generation, beat.member_id) == (self.generation, self.member_id) and not self.joining:
                self.note_fault(reply.fault)


class MembershipRefused(LogError):
    """The group does not accept this member, or its commit."""

    code = "GROUP_REFUSED"
