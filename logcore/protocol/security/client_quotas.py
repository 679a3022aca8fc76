"""Finds the quota of a client: quotas of users and client ids that were set over the protocol precede the configured
one."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, NamedTuple

from ...log_settings import CLIENT, client_of
from ..served_log import ServedLog
from .quotas import Quotas

USER: Final = "user"
CLIENT_ID: Final = "client-id"
PRODUCED: Final = "producer_byte_rate"
FETCHED: Final = "consumer_byte_rate"
ANONYMOUS: Final = "ANONYMOUS"
"""The user name of clients that are not authenticated, as in Kafka."""

_KNOWN_FOR_S: Final = 1.0

Entity = frozenset[tuple[str, str | None]]


class Rate(NamedTuple):
    """`shared_by`: clients with the same value share the rate."""

    shared_by: Hashable
    bytes_per_s: float


class ClientQuotas:
    """State: the quotas, at most one second old."""

    def __init__(self, log: ServedLog, configured: Quotas) -> None:
        self._log = log
        self._usual = {PRODUCED: configured.produce_bytes, FETCHED: configured.fetch_bytes}
        self._known: Mapping[Entity, Mapping[str, str]] = {}
        self._until_s = float("-inf")

    def rate(self, kind: str, user: str, client_id: str, now_s: float) -> Rate | None:
        """None if there is no limit."""
        if now_s >= self._until_s:
            self._known, self._until_s = known_quotas(self._log), now_s + _KNOWN_FOR_S
        if self._known:
            for entity, shared_by in _candidates(user, client_id):
                value = self._known.get(entity, {}).get(kind)
                if value is not None:
                    return Rate(shared_by, float(value))
        usual = self._usual[kind]
        return None if usual is None else Rate(client_id, usual)


def known_quotas(log: ServedLog) -> dict[Entity, Mapping[str, str]]:
    """The quotas that were set over the protocol."""
    return {frozenset(client_of(resource).items()): log.settings(resource) for resource in log.resources(CLIENT)}


def _candidates(user: str, client_id: str) -> Iterable[tuple[Entity, Hashable]]:
    """Kafka's order, the most specific first. None stands for all that have no quota of their own."""
    for name in (user, None):
        yield frozenset({(USER, name), (CLIENT_ID, client_id)}), (user, client_id)
        yield frozenset({(USER, name), (CLIENT_ID, None)}), (user, client_id)
        yield frozenset({(USER, name)}), (user, None)
    for id in (client_id, None):
        yield frozenset({(CLIENT_ID, id)}), (None, client_id)
