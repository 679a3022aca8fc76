"""Answers about quotas: how many bytes per second users and clients may send and fetch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from millstream.errors import LogError

from ...error_codes import ErrorCode
from ...log_settings import of_client
from ..kafka_service import Desk
from ..security.access import check_cluster
from ..security.accesses import ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS
from ..security.client_quotas import CLIENT_ID, FETCHED, PRODUCED, USER, Entity, known_quotas
from ..security.peer import Peer
from ..setting_limits import NAME_BYTES_MAX, check_room, is_too_long
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields

if TYPE_CHECKING:
    from .request_shapes import (
        AlterClientQuotasEntry,
        AlterClientQuotasOp,
        AlterClientQuotasRequest,
        DescribeClientQuotasRequest,
    )

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_EVERYBODY: Final[Entity] = frozenset({(CLIENT_ID, None)})


class InvalidQuota(LogError):
    """A quota for a kind of entity, or of a kind, that does not exist here."""

    code = "INVALID_QUOTA"


def describe_client_quotas(broker: Desk, request: DescribeClientQuotasRequest, peer: Peer) -> Fields:
    """For administrators. The configured quota counts as that of the default client, if no other is set."""
    try:
        check_cluster(peer, DESCRIBE_CLUSTER_CONFIGS)
    except LogError as error:
        return {"error_code": code_of(error), "error_message": message_of(error), "entries": None}
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in sorted(entity, key=str)],
            "values": [{"key": key, "value": float(value)} for key, value in sorted(values.items())],
        }
        for entity, values in _all(broker).items()
        if _fits(entity, request)
    ]
    return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}


def _all(broker: Desk) -> Mapping[Entity, Mapping[str, str]]:
    found = known_quotas(broker.log)
    configured = broker.settings.quotas
    given = {PRODUCED: configured.produce_bytes, FETCHED: configured.fetch_bytes}
    usual = {key: str(value) for key, value in given.items() if value is not None}
    if usual:
        found[_EVERYBODY] = {**usual, **found.get(_EVERYBODY, {})}
    return found


def _fits(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    parts = dict(entity)
    for asked in request.components:
        if asked.entity_type not in parts:
            return False
        name = parts[asked.entity_type]
        if asked.match_type == _EXACT and (name is None or name != asked.match):
            return False
        if asked.match_type == _DEFAULT and name is not None:
            return False
    return not request.strict or len(parts) == len(request.components)


def alter_client_quotas(broker: Desk, request: AlterClientQuotasRequest, peer: Peer) -> Fields:
    """For administrators."""
    return {"entries": [_altered(broker, peer, entry, only_check=request.validate_only) for entry in request.entries]}


def _altered(broker: Desk, peer: Peer, entry: AlterClientQuotasEntry, *, only_check: bool) -> Fields:
    result = {"entity": [{"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity]}
    try:
        check_cluster(peer, ALTER_CLUSTER_CONFIGS)
        resource = of_client(_entity(entry))
        changes = dict(_change(op) for op in entry.ops)
        check_room(broker.log, resource, changes)
        if not only_check:
            broker.log.change_settings(resource, changes)
    except InvalidQuota as error:
        return {**result, "error_code": ErrorCode.invalid_request, "error_message": message_of(error)}
    except LogError as error:
        return {**result, "error_code": code_of(error), "error_message": message_of(error)}
    return {**result, "error_code": ErrorCode.none, "error_message": None}


def _entity(entry: AlterClientQuotasEntry) -> Mapping[str, str | None]:
    """Raises `InvalidQuota`."""
    parts = [(part.entity_type, part.entity_name) for part in entry.entity]
    kinds = [kind for kind, _ in parts]
    if not parts or len(set(kinds)) < len(kinds) or not set(kinds) <= {USER, CLIENT_ID}:
        raise InvalidQuota(f"a quota is for a {USER}, a {CLIENT_ID} or both, and not for {kinds}")
    if any(is_too_long(name) for _, name in parts):
        raise InvalidQuota(f"the name of a {USER} or a {CLIENT_ID} has at most {NAME_BYTES_MAX} bytes")
    return dict(parts)


def _change(op: AlterClientQuotasOp) -> tuple[str, str | None]:
    """Raises `InvalidQuota`."""
    if op.key not in (PRODUCED, FETCHED):
        raise InvalidQuota(f'there is no quota "{op.key}": there are {PRODUCED} and {FETCHED}')
    if op.remove:
        return op.key, None
    if not (math.isfinite(op.value) and op.value > 0):
        raise InvalidQuota(f"{op.key} is a number of bytes per second above 0, and not {op.value}")
    return op.key, str(op.value)
