"""The members of one classic group, and what follows from them: the protocol that all support, and the leader."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from .group_messages import GroupDescription, GroupState, JoinedMember, JoinGroup, MemberDescription, Protocol


@dataclass(slots=True)
class Member:
    """Invariant: at most one of `join_ticket` and `sync_ticket` is set; while one is set, the member is never late."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    deadline_ms: int  # the member has to send something before this time
    assignment: bytes = b""
    join_ticket: int | None = None
    sync_ticket: int | None = None
    owes_sync: bool = False  # it joined this generation and has not yet asked for its assignment
    knows_skipping: bool = False

    def update(self, join: JoinGroup, now_ms: int) -> None:
        self.client_id, self.client_host = join.client_id, join.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = join.session_timeout_ms, join.rebalance_timeout_ms
        self.protocols, self.knows_skipping = join.protocols, join.knows_skipping
        self.renew(now_ms)

    def renew(self, now_ms: int) -> None:
        self.deadline_ms = now_ms + self.session_timeout_ms

    @property
    def waits(self) -> bool:
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((offered.metadata for offered in self.protocols if offered.name == protocol), b"")


@dataclass(slots=True)
class Group:
    """State of one group.

    Invariants: without members it is EMPTY, or PREPARING while a member is expected. `leader_id` is the id of a member,
    or None. Each instance id of a static member belongs to one member. `deadline_ms` is set while PREPARING or
    COMPLETING.
    """

    name: str
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)  # member ids given out, and until when they may be used
    deadline_ms: int | None = None  # of the current join or sync
    first_join_until_ms: int | None = None  # latest end of the wait for the first members of an empty group
    newcomers: bool = False  # members have joined since this wait was last extended
    recorded: bool = False  # the log has a record of it

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self.expected.pop(member.member_id, None)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member:
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
            del self.instances[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def replace(self, old_id: str, new_id: str) -> Member:
        """A restarted static member takes the place of its old member id, under a new one."""
        leads = self.leader_id == old_id
        member = self.members.pop(old_id)
        member.member_id = new_id
        member.join_ticket = member.sync_ticket = None
        self.add(member)
        if leads:
            self.leader_id = new_id
        return member

    def supports(self, join: JoinGroup) -> bool:
        """Whether the new member and all others have a protocol in common."""
        others = [
            member
            for member in self.members.values()
            if member.member_id != join.member_id
            and (join.instance_id is None or member.instance_id != join.instance_id)
        ]
        if not others:
            return bool(join.protocols) and bool(join.protocol_type)
        names = {protocol.name for protocol in join.protocols}
        for member in others:
            names &= {protocol.name for protocol in member.protocols}
        return self.protocol_type == join.protocol_type and bool(names)

    def elected_protocol(self) -> str:
        """The protocol with the most votes: each member votes for its first protocol among those that all support."""
        common = set.intersection(*({p.name for p in member.protocols} for member in self.members.values()))
        votes = Counter(
            next(protocol.name for protocol in member.protocols if protocol.name in common)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def joined_members(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata_for(self.protocol))
            for member in self.members.values()
        )

    def description(self) -> GroupDescription:
        settled = self.state is GroupState.STABLE
        return GroupDescription(
            self.name,
            self.state,
            self.protocol_type or "",
            (self.protocol or "") if settled else "",
            self.generation,
            tuple(
                MemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.metadata_for(self.protocol) if settled else b"",
                    member.assignment if settled else b"",
                )
                for member in self.members.values()
            ),
        )
