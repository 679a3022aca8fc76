"""/v3/clusters/ID/acls: ACLs of the log, for who may describe or alter the cluster, as at the Kafka port."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from millstream.errors import LogError, MillstreamError

from ...logcore.protocol.security.accesses import ALTER_CLUSTER, DESCRIBE_CLUSTER
from ...logcore.protocol.security.acl_bindings import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from ..http.context import HttpContext, rights_of
from ..security.rights import Rights
from .proxied_log import ProxiedLog
from .proxy_errors import BAD_REQUEST, CONSTRAINT, INVALID_REQUEST, KAFKA_ERROR, ProxyRefusal, number_of
from .proxy_requests import objects_in, read_body, text_in
from .v3_resources import Answer, Clusters, Links, v3_answer, v3_json

_ACLS: Final = "/v3/clusters/{cluster_id}/acls"
_TOGETHER_MAX: Final = 1000
_NEEDED_TO_DELETE: Final = ("resource_type", "pattern_type", "operation", "permission")
_OFF: Final = "Security features are disabled: there are no users in the configuration ([access])."
_OF_OTHERS: Final = "Security features are disabled: the ACLs of this log are those of its brokers."

_Named = TypeVar("_Named", bound=IntEnum)


class V3Acls:
    """Each method answers one route."""

    def __init__(self, context: HttpContext, log: ProxiedLog, clusters: Clusters) -> None:
        self._context, self._log, self._clusters = context, log, clusters

    def routes(self) -> list[Route]:
        answers: tuple[tuple[str, str, Answer], ...] = (
            (_ACLS, "GET", self.search),
            (_ACLS, "POST", self.create),
            (_ACLS, "DELETE", self.delete),
            (f"{_ACLS}:batch", "POST", self.create_batch),
        )
        return [Route(path, v3_answer(answer), methods=[method]) for path, method, answer in answers]

    async def search(self, request: Request) -> Response:
        def look(links: Links) -> dict[str, Any]:
            self._check(rights_of(request.scope), changes=False)
            found = self._log.log.cluster.acls.describe(_filter(request.query_params))
            return links.collection("KafkaAclList", ("acls",), [_acl(links, each) for each in sorted(found)])

        return await self._answer(request, look)

    async def create(self, request: Request) -> Response:
        _, body = await read_body(request, self._context.body_bytes_max)
        return await self._created(request, lambda: [body])

    async def create_batch(self, request: Request) -> Response:
        _, body = await read_body(request, self._context.body_bytes_max)
        return await self._created(request, lambda: objects_in(body, "data", _TOGETHER_MAX))

    async def _created(self, request: Request, asked: Callable[[], list[dict[str, Any]]]) -> Response:
        def create(links: Links) -> str:
            self._check(rights_of(request.scope), changes=True)
            bindings = [_binding(each) for each in asked()]
            for error in self._log.log.cluster.acls.create(bindings).values():
                raise _refused(error)
            return _acl(links, bindings[0])["metadata"]["self"] if bindings else links.url("acls")

        where = await self._context.workers.run(lambda: create(self._clusters.links(request)))
        return Response(status_code=201, headers={"location": where})

    async def delete(self, request: Request) -> Response:
        def delete(links: Links) -> dict[str, Any]:
            self._check(rights_of(request.scope), changes=True)
            for name in _NEEDED_TO_DELETE:
                if not request.query_params.get(name):
                    raise ProxyRefusal(BAD_REQUEST, f"Bad Request: {name} is needed")
            found = self._log.log.cluster.acls.delete(_filter(request.query_params))
            return {"data": [_acl(links, each) for each in sorted(found)]}

        return await self._answer(request, delete)

    def _check(self, rights: Rights, *, changes: bool) -> None:
        """Raises `ProxyRefusal`, `NotPermitted`."""
        if not self._log.log.capabilities.copies:
            raise ProxyRefusal(INVALID_REQUEST, _OF_OTHERS)
        if rights.user is None:
            raise ProxyRefusal(INVALID_REQUEST, _OFF)
        rights.require_access(ALTER_CLUSTER if changes else DESCRIBE_CLUSTER, CLUSTER_NAME)

    async def _answer(self, request: Request, look: Callable[[Links], dict[str, Any]]) -> Response:
        return v3_json(await self._context.workers.run(lambda: look(self._clusters.links(request))))


def _refused(error: LogError) -> MillstreamError:
    """What a repetition would not change is the request's fault."""
    return ProxyRefusal(INVALID_REQUEST, error.message) if number_of(error) == KAFKA_ERROR else error


def _acl(links: Links, binding: AclBinding) -> dict[str, Any]:
    named = {
        "resource_type": binding.resource.name,
        "resource_name": binding.name,
        "pattern_type": binding.pattern.name,
        "principal": binding.principal,
        "host": binding.host,
        "operation": binding.operation.name,
        "permission": binding.permission.name,
    }
    return {
        "kind": "KafkaAcl",
        "metadata": {"self": f"{links.url('acls')}?{urlencode(named)}"},
        "cluster_id": links.cluster_id,
        **named,
    }


def _binding(body: dict[str, Any]) -> AclBinding:
    """Raises `ProxyRefusal`."""
    return AclBinding(
        _named(AclResource, _needed(body, "resource_type"), "resource_type"),
        _needed(body, "resource_name"),
        _named(AclPattern, _needed(body, "pattern_type"), "pattern_type"),
        _needed(body, "principal"),
        _needed(body, "host"),
        _named(AclOperation, _needed(body, "operation"), "operation"),
        _named(AclPermission, _needed(body, "permission"), "permission"),
    )


def _needed(body: dict[str, Any], name: str) -> str:
    value = text_in(body, name)
    if value is None:
        raise ProxyRefusal(CONSTRAINT, f"{name} may not be null")
    return value


def _filter(given: Mapping[str, str]) -> AclFilter:
    """What is missing may be anything. Raises `ProxyRefusal`."""
    return AclFilter(
        _named(AclResource, given.get("resource_type") or "ANY", "resource_type"),
        given.get("resource_name"),
        _named(AclPattern, given.get("pattern_type") or "ANY", "pattern_type"),
        given.get("principal"),
        given.get("host"),
        _named(AclOperation, given.get("operation") or "ANY", "operation"),
        _named(AclPermission, given.get("permission") or "ANY", "permission"),
    )


def _named(kind: type[_Named], text: str, what: str) -> _Named:
    """In any case. Raises `ProxyRefusal`."""
    found = kind.__members__.get(text.upper())
    if found is None:
        raise ProxyRefusal(BAD_REQUEST, f"Bad Request: {what} is one of {', '.join(kind.__members__)}")
    return found
