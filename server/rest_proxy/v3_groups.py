"""/v3/clusters/ID/consumer-groups: groups, their members and assignments, and lag."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.errors import LogError

from ...logcore.client import TopicPartition
from ...logcore.clients.admin import assigned_to
from ...logcore.cores.group_messages import GroupDescription, GroupState, MemberDescription
from ...logcore.errors import UnknownTopic
from ..http.context import HttpContext, rights_of
from ..security.rights import Need, Rights
from .proxied_log import ProxiedLog
from .proxy_errors import ProxyRefusal
from .v3_resources import NOT_FOUND, Answer, Clusters, Links, v3_answer, v3_json

_GROUPS: Final = "/v3/clusters/{cluster_id}/consumer-groups"
_GROUP: Final = f"{_GROUPS}/{{consumer_group_id}}"
_CONSUMER: Final = f"{_GROUP}/consumers/{{consumer_id}}"
_PLACE: Final = "{topic_name}/partitions/{partition_id}"
_STATES: Final = {
    GroupState.EMPTY: "EMPTY",
    GroupState.PREPARING: "PREPARING_REBALANCE",
    GroupState.COMPLETING: "COMPLETING_REBALANCE",
    GroupState.STABLE: "STABLE",
    GroupState.RECONCILING: "RECONCILING",
    GroupState.DEAD: "DEAD",
}


@dataclass(frozen=True, slots=True)
class _Lag:
    """`member`: the member that reads the partition; None if there is none."""

    where: TopicPartition
    current_offset: int
    log_end_offset: int
    member: MemberDescription | None

    @property
    def lag(self) -> int:
        return max(0, self.log_end_offset - self.current_offset)


class V3Groups:
    """Each method answers one route."""

    def __init__(self, context: HttpContext, log: ProxiedLog, clusters: Clusters) -> None:
        self._context, self._log, self._clusters = context, log, clusters

    def routes(self) -> Sequence[Route]:
        answers: tuple[tuple[str, Answer], ...] = (
            (_GROUPS, self.list),
            (_GROUP, self.get),
            (f"{_GROUP}/consumers", self.consumers),
            (_CONSUMER, self.consumer),
            (f"{_CONSUMER}/assignments", self.assignments),
            (f"{_CONSUMER}/assignments/{_PLACE}", self.assignment),
            (f"{_GROUP}/lag-summary", self.lag_summary),
            (f"{_GROUP}/lags", self.lags),
            (f"{_GROUP}/lags/{_PLACE}", self.lag),
        )
        return [Route(path, v3_answer(answer), methods=["GET"]) for path, answer in answers]

    async def list(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links) -> dict[str, Any]:
            data = [self._group(links, group) for group in self._seen_groups(rights)]
            return links.collection("KafkaConsumerGroupList", ("consumer-groups",), data)

        return await self._answer(request, look)

    def _seen_groups(self, rights: Rights) -> Iterator[GroupDescription]:
        for name in sorted(self._log.log.groups.names()):
            if self._log.sees_group(rights, name):
                try:
                    yield self._log.log.groups.describe(name)
                except LogError:  # only newer requests describe its kind, or it is gone
                    continue

    async def get(self, request: Request) -> Response:
        return await self._of_group(request, self._group)

    def _group(self, links: Links, group: GroupDescription) -> dict[str, Any]:
        path, node = ("consumer-groups", group.group), self._log.log.cluster.coordinator(group.group)
        return links.resource(
            "KafkaConsumerGroup", path, ("consumer-group", group.group),
            consumer_group_id=group.group, is_simple=not group.protocol_type, partition_assignor=group.protocol,
            state=_STATES[group.state], type=group.kind.upper(), is_mixed_consumer_group=False,
            coordinator=links.related("brokers", *(() if node is None else (node,))),
            consumers=links.related(*path, "consumers"), lag_summary=links.related(*path, "lag-summary"),
        )  # fmt: skip

    async def consumers(self, request: Request) -> Response:
        def look(links: Links, group: GroupDescription) -> dict[str, Any]:
            data = [_consumer(links, group.group, member) for member in group.members]
            return links.collection("KafkaConsumerList", ("consumer-groups", group.group, "consumers"), data)

        return await self._of_group(request, look)

    async def consumer(self, request: Request) -> Response:
        return await self._of_group(
            request, lambda links, group: _consumer(links, group.group, _member(request, group))
        )

    async def assignments(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links, group: GroupDescription) -> dict[str, Any]:
            member = _member(request, group)
            data = [
                _assignment(links, group.group, member, where)
                for where in sorted(assigned_to(member))
                if self._log.sees(rights, where.topic)
            ]
            path = ("consumer-groups", group.group, "consumers", member.member_id, "assignments")
            return links.collection("KafkaConsumerAssignmentList", path, data)

        return await self._of_group(request, look)

    async def assignment(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links, group: GroupDescription) -> dict[str, Any]:
            member = _member(request, group)
            where = self._place(request, rights, assigned_to(member), "Assignment")
            return _assignment(links, group.group, member, where)

        return await self._of_group(request, look)

    async def lags(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links, group: GroupDescription) -> dict[str, Any]:
            data = [_lag(links, group.group, lag) for lag in self._lags(group, rights)]
            return links.collection("KafkaConsumerLagList", ("consumer-groups", group.group, "lags"), data)

        return await self._of_group(request, look)

    async def lag(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links, group: GroupDescription) -> dict[str, Any]:
            lags = {lag.where: lag for lag in self._lags(group, rights)}
            return _lag(links, group.group, lags[self._place(request, rights, lags, "Lag")])

        return await self._of_group(request, look)

    async def lag_summary(self, request: Request) -> Response:
        rights = rights_of(request.scope)

        def look(links: Links, group: GroupDescription) -> dict[str, Any]:
            lags = list(self._lags(group, rights))
            if not lags:
                raise ProxyRefusal(NOT_FOUND, f"Consumer group {group.group} has committed no offsets.")
            return _summary(links, group.group, lags)

        return await self._of_group(request, look)

    def _lags(self, group: GroupDescription, rights: Rights) -> Iterator[_Lag]:
        """The lag in all partitions that the group has committed and the user may see, in order."""
        members = {where: member for member in group.members for where in assigned_to(member)}
        for where, committed in sorted(self._log.log.groups.committed(group.group).items()):
            if not self._log.sees(rights, where.topic):
                continue
            try:
                end = self._log.log.offsets(*where).high_watermark
            except UnknownTopic:
                continue
            yield _Lag(where, committed.offset, end, members.get(where))

    def _place(self, request: Request, rights: Rights, known: Any, what: str) -> TopicPartition:
        """The partition in the path, if it is among the known ones. Raises `ProxyRefusal`, `NotPermitted`."""
        topic, asked = request.path_params["topic_name"], request.path_params["partition_id"]
        self._log.check_seen(rights, topic)
        found = next((where for where in known if where.topic == topic and str(where.partition) == asked), None)
        if found is None:
            raise ProxyRefusal(NOT_FOUND, f"{what} of {topic[:100]}-{asked[:20]} cannot be found.")
        return found

    async def _of_group(self, request: Request, look: Callable[[Links, GroupDescription], dict[str, Any]]) -> Response:
        name = request.path_params["consumer_group_id"]
        rights_of(request.scope).require([Need("group", name)])

        def answer(links: Links) -> dict[str, Any]:
            found = self._log.log.groups.describe(name)
            if found.state is GroupState.DEAD:
                raise ProxyRefusal(NOT_FOUND, f"Consumer group {name[:100]} cannot be found.")
            return look(links, found)

        return await self._answer(request, answer)

    async def _answer(self, request: Request, look: Callable[[Links], dict[str, Any]]) -> Response:
        return v3_json(await self._context.workers.run(lambda: look(self._clusters.links(request))))


def _member(request: Request, group: GroupDescription) -> MemberDescription:
    """Raises `ProxyRefusal`."""
    asked = request.path_params["consumer_id"]
    found = next((member for member in group.members if member.member_id == asked), None)
    if found is None:
        raise ProxyRefusal(NOT_FOUND, f"Consumer {asked[:100]} cannot be found.")
    return found


def _consumer(links: Links, group: str, member: MemberDescription) -> dict[str, Any]:
    path = ("consumer-groups", group, "consumers", member.member_id)
    return links.resource(
        "KafkaConsumer", path, ("consumer-group", group, "consumer", member.member_id),
        consumer_group_id=group, consumer_id=member.member_id, instance_id=member.instance_id,
        client_id=member.client_id, assignments=links.related(*path, "assignments"),
    )  # fmt: skip


def _assignment(links: Links, group: str, member: MemberDescription, where: TopicPartition) -> dict[str, Any]:
    place = (where.topic, "partitions", where.partition)
    return links.resource(
        "KafkaConsumerAssignment", ("consumer-groups", group, "consumers", member.member_id, "assignments", *place),
        ("consumer-group", group, "consumer", member.member_id, "assignment", where.topic,
         "partition", where.partition),
        consumer_group_id=group, consumer_id=member.member_id, topic_name=where.topic, partition_id=where.partition,
        partition=links.related("topics", *place), lag=links.related("consumer-groups", group, "lags", *place),
    )  # fmt: skip


def _lag(links: Links, group: str, lag: _Lag) -> dict[str, Any]:
    where = lag.where
    return links.resource(
        "KafkaConsumerLag", ("consumer-groups", group, "lags", where.topic, "partitions", where.partition),
        ("consumer-group", group, "lag", where.topic, "partition", where.partition),
        consumer_group_id=group, topic_name=where.topic, partition_id=where.partition,
        consumer_id="" if lag.member is None else lag.member.member_id,
        instance_id=None if lag.member is None else lag.member.instance_id,
        client_id="" if lag.member is None else lag.member.client_id,
        current_offset=lag.current_offset, log_end_offset=lag.log_end_offset, lag=lag.lag,
    )  # fmt: skip


def _summary(links: Links, group: str, lags: list[_Lag]) -> dict[str, Any]:
    most = max(lags, key=lambda lag: lag.lag)
    member, where, path = most.member, most.where, ("consumer-groups", group)
    consumer_id = "" if member is None else member.member_id
    return links.resource(
        "KafkaConsumerGroupLagSummary", (*path, "lag-summary"), ("consumer-group", group, "lag-summary"),
        consumer_group_id=group, max_lag_consumer_id=consumer_id,
        max_lag_instance_id=None if member is None else member.instance_id,
        max_lag_client_id="" if member is None else member.client_id,
        max_lag_topic_name=where.topic, max_lag_partition_id=where.partition,
        max_lag=most.lag, total_lag=sum(lag.lag for lag in lags),
        max_lag_consumer=links.related(*path, "consumers", *([consumer_id] if consumer_id else [])),
        max_lag_partition=links.related("topics", where.topic, "partitions", where.partition),
    )  # fmt: skip
