"""Common parts of all v3 responses: kinds, links, names of resources; and the checks before each answer."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from ...logcore.errors import UnknownTopic
from ..http.context import HttpContext
from ..http.statements import json_response
from .proxied_log import ProxiedLog
from .proxy_errors import JSON, TOPIC_NOT_FOUND, UNKNOWN_TOPIC_OR_PARTITION, ProxyRefusal, refusal

NOT_FOUND: Final = 404

Answer = Callable[[Request], Awaitable[Response]]


def v3_answer(answer: Answer) -> Answer:
    """Wraps a route so that its errors have the form of v3."""

    @functools.wraps(answer)
    async def route(request: Request) -> Response:
        try:
            return await answer(request)
        except UnknownTopic:
            return refusal(no_such_partition(), JSON)
        except ProxyRefusal as error:
            return refusal(no_such_partition() if error.number == TOPIC_NOT_FOUND else error, JSON)
        except Exception as error:
            return refusal(error, JSON)

    return route


def no_such_partition() -> ProxyRefusal:
    return ProxyRefusal(UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")


def v3_json(value: Any, status: int = 200) -> Response:
    return json_response(value, status, JSON)


@dataclass(frozen=True, slots=True)
class Links:
    """URLs below /v3/clusters/ID. In: `base`: from the client's request; `cluster_id`.

    >>> links = Links("http://h:1", "c")
    >>> links.url("topics", "a b")
    'http://h:1/v3/clusters/c/topics/a%20b'
    >>> links.name("topic", "t", "partition", 1)
    'crn:///kafka=c/topic=t/partition=1'
    """

    base: str
    cluster_id: str

    def url(self, *path: object) -> str:
        parts = "".join(f"/{quote(str(part), safe=':')}" for part in path)
        return f"{self.base}/v3/clusters/{quote(self.cluster_id, safe='')}{parts}"

    def related(self, *path: object) -> dict[str, str]:
        return {"related": self.url(*path)}

    def name(self, *parts: object) -> str:
        """In: alternating kinds and names; the last kind may have no name."""
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        said = ["=".join(str(part) for part in pair) for pair in pairs]
        return "/".join([f"crn:///kafka={self.cluster_id}", *said])

    def resource(
        self, kind: str, path: tuple[object, ...], name: tuple[object, ...], /, **members: Any
    ) -> dict[str, Any]:
        return {
            "kind": kind,
            "metadata": {"self": self.url(*path), "resource_name": self.name(*name)},
            "cluster_id": self.cluster_id,
            **members,
        }

    def collection(self, kind: str, path: tuple[object, ...], data: Iterable[dict[str, Any]]) -> dict[str, Any]:
        return {"kind": kind, "metadata": {"self": self.url(*path), "next": None}, "data": list(data)}


class Clusters:
    """The identity of this cluster. State: its id, once it is known."""

    def __init__(self, context: HttpContext, log: ProxiedLog) -> None:
        self._context, self._log = context, log
        self._id: str | None = None

    def id(self) -> str:
        """The cluster's id; the first call may ask the log. Raises `LogError`."""
        if self._id is None:
            self._id = self._log.log.cluster.brokers().cluster_id or self._context.cluster_id
        return self._id

    def links(self, request: Request) -> Links:
        """Raises `ProxyRefusal` if the path names another cluster."""
        own, asked = self.id(), request.path_params.get("cluster_id")
        if asked is not None and asked != own:
            raise ProxyRefusal(NOT_FOUND, f"Cluster {asked[:100]} cannot be found.")
        return Links(f"{request.url.scheme}://{request.url.netloc}", own)
