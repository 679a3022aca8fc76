"""Answers about ACLs: describing, creating and deleting them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.errors import LogError

from ...error_codes import ErrorCode
from ...log_settings import ACLS
from ..kafka_service import Desk
from ..security.access import check_cluster
from ..security.accesses import ALTER_CLUSTER, DESCRIBE_CLUSTER
from ..security.acl_bindings import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from ..security.acl_table import table_of
from ..security.peer import Peer
from ..setting_limits import NAME_BYTES_MAX, TooManySettings, is_too_long
from ..wire.faults import code_of, message_of
from ..wire.messages import Fields

if TYPE_CHECKING:
    from .request_shapes import (
        AclFilterShape,
        CreateAclsCreation,
        CreateAclsRequest,
        DeleteAclsRequest,
        DescribeAclsRequest,
    )

ACLS_MAX: Final = 10_000
"""All nodes have them in memory."""
ACLS_CAME_WITH: Final = 2
"""The version of the cluster (`replication/cluster_version.py`): older nodes would not keep to them."""
_TOGETHER: Final = 500  # in one record of the metadata

_Number = TypeVar("_Number", bound=IntEnum)


class InvalidAcl(LogError):
    """A request about ACLs names something that there is not."""

    code = "INVALID_ACL"


class AclsOff(LogError):
    """There are no ACLs here: everybody may do everything, or some node would not keep to them."""

    code = "ACLS_OFF"


def _check(broker: Desk, peer: Peer, *, changes: bool) -> None:
    """Raises `AclsOff`, `OnlyForAdministrators`."""
    if broker.settings.users is None and not peer.trusted:
        raise AclsOff("without users in the server's configuration ([access]) everybody may do everything")
    if broker.layout.cluster_version < ACLS_CAME_WITH:
        what = "an earlier release can be among the nodes of this cluster, and would not keep to ACLs"
        raise AclsOff(what, hint="Start each node with the new release, then: millstream cluster upgrade")
    check_cluster(peer, ALTER_CLUSTER if changes else DESCRIBE_CLUSTER)


def _refusal(error: LogError) -> Fields:
    match error:
        case AclsOff():
            code = ErrorCode.security_disabled
        case InvalidAcl():
            code = ErrorCode.invalid_request
        case _:
            code = code_of(error)
    return {"error_code": code, "error_message": message_of(error)}


def describe_acls(broker: Desk, request: DescribeAclsRequest, peer: Peer) -> Fields:
    try:
        _check(broker, peer, changes=False)
        wanted = _filter(request)
    except LogError as error:
        return {**_refusal(error), "resources": []}
    found = _found(broker, wanted)
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "resources": [
            {
                "resource_type": resource,
                "resource_name": name,
                "pattern_type": pattern,
                "acls": [
                    {
                        "principal": binding.principal,
                        "host": binding.host,
                        "operation": binding.operation,
                        "permission_type": binding.permission,
                    }
                    for binding in bindings
                ],
            }
            for (resource, name, pattern), bindings in groupby(found, lambda each: each[:3])
        ],
    }


def _found(broker: Desk, wanted: AclFilter) -> list[AclBinding]:
    return sorted(filter(wanted.finds, table_of(broker.log.settings(ACLS)).bindings))


# Creating


def create_acls(broker: Desk, request: CreateAclsRequest, peer: Peer) -> Fields:
    """Answers when they are durable. One that exists already is created, too."""
    try:
        _check(broker, peer, changes=True)
    except LogError as error:
        return {"results": [_refusal(error)] * len(request.creations)}
    outcome: list[AclBinding | LogError] = [_binding_or_not(asked) for asked in request.creations]
    wanted = list(dict.fromkeys(each for each in outcome if isinstance(each, AclBinding)))
    failed = _created(broker, wanted)
    results = [failed.get(each) if isinstance(each, AclBinding) else each for each in outcome]
    none: Fields = {"error_code": ErrorCode.none, "error_message": None}
    return {"results": [none if error is None else _refusal(error) for error in results]}


def _binding_or_not(asked: CreateAclsCreation) -> AclBinding | LogError:
    try:
        return _binding(asked)
    except InvalidAcl as error:
        return error


def _binding(asked: CreateAclsCreation) -> AclBinding:
    """Raises `InvalidAcl`."""
    resource = _one_of(AclResource, asked.resource_type, "type of resources")
    pattern = _one_of(AclPattern, asked.resource_pattern_type, "type of patterns", AclPattern.MATCH)
    operation = _one_of(AclOperation, asked.operation, "operation")
    permission = _one_of(AclPermission, asked.permission_type, "type of permissions")
    if not asked.resource_name:
        raise InvalidAcl("the name of a resource is not empty")
    if resource is AclResource.CLUSTER and asked.resource_name != CLUSTER_NAME:
        raise InvalidAcl(f"the only name of the resource CLUSTER is {CLUSTER_NAME}")
    kind, colon, name = asked.principal.partition(":")
    if not (kind and colon and name):
        raise InvalidAcl("a principal has a type and a name, such as User:ana")
    if any(map(is_too_long, (asked.resource_name, asked.principal, asked.host))):
        raise InvalidAcl(f"names of resources, principals and hosts have at most {NAME_BYTES_MAX} bytes")
    return AclBinding(resource, asked.resource_name, pattern, asked.principal, asked.host, operation, permission)


def _one_of(kind: type[_Number], number: int, what: str, *no_others: _Number) -> _Number:
    """What a binding can have: not ANY, which is for filters. Raises `InvalidAcl`."""
    found = _known(kind, number, what)
    if found.name == "ANY" or found in no_others:
        raise InvalidAcl(f"an ACL cannot have the {what} {found.name}")
    return found


def _known(kind: type[_Number], number: int, what: str) -> _Number:
    """Raises `InvalidAcl`."""
    try:
        return kind(number)
    except ValueError:
        raise InvalidAcl(f"there is no {what} {number}") from None


def _created(broker: Desk, wanted: Sequence[AclBinding]) -> Mapping[AclBinding, LogError]:
    """The errors of those that could not be created."""
    failed: dict[AclBinding, LogError] = {}
    for some in _parts(wanted):
        known = broker.log.settings(ACLS)
        new = [binding for binding in some if binding.text() not in known]
        room = max(ACLS_MAX - len(known), 0)
        hint = "Delete ACLs that nobody needs; a prefix or User:* stands for many."
        failed |= {
            binding: TooManySettings(f"there are {ACLS_MAX} ACLs, and no more may", hint=hint) for binding in new[room:]
        }
        failed |= _changed(broker, new[:room], "")
    return failed


def _parts(bindings: Sequence[AclBinding]) -> Iterator[Sequence[AclBinding]]:
    return (bindings[first : first + _TOGETHER] for first in range(0, len(bindings), _TOGETHER))


def _changed(broker: Desk, bindings: Sequence[AclBinding], value: str | None) -> Mapping[AclBinding, LogError]:
    """Changes all of them as one. Returns the errors."""
    if not bindings:
        return {}
    try:
        broker.log.change_settings(ACLS, {binding.text(): value for binding in bindings})
    except LogError as error:
        return dict.fromkeys(bindings, error)
    return {}


# Deleting


def delete_acls(broker: Desk, request: DeleteAclsRequest, peer: Peer) -> Fields:
    """Deletes what a filter finds. Answers when that is durable."""
    try:
        _check(broker, peer, changes=True)
        broker.log.change_settings(ACLS, {})  # this node then knows what was created at any node before
    except LogError as error:
        return {"filter_results": [{**_refusal(error), "matching_acls": []}] * len(request.filters)}
    outcome = [_matching(broker, asked) for asked in request.filters]
    found = list(dict.fromkeys(each for some in outcome if not isinstance(some, LogError) for each in some))
    failed: dict[AclBinding, LogError] = {}
    for some in _parts(found):
        failed |= _changed(broker, some, None)
    return {
        "filter_results": [
            {**_refusal(each), "matching_acls": []} if isinstance(each, LogError) else _deleted(each, failed)
            for each in outcome
        ]
    }


def _matching(broker: Desk, asked: AclFilterShape) -> list[AclBinding] | InvalidAcl:
    try:
        return _found(broker, _filter(asked))
    except InvalidAcl as error:
        return error


def _filter(asked: AclFilterShape) -> AclFilter:
    """Raises `InvalidAcl`."""
    return AclFilter(
        _known(AclResource, asked.resource_type_filter, "type of resources"),
        asked.resource_name_filter,
        _known(AclPattern, asked.pattern_type_filter, "type of patterns"),
        asked.principal_filter,
        asked.host_filter,
        _known(AclOperation, asked.operation, "operation"),
        _known(AclPermission, asked.permission_type, "type of permissions"),
    )


def _deleted(bindings: Iterable[AclBinding], failed: Mapping[AclBinding, LogError]) -> Fields:
    none: Fields = {"error_code": ErrorCode.none, "error_message": None}
    return {
        **none,
        "matching_acls": [
            {
                **(_refusal(failed[binding]) if binding in failed else none),
                "resource_type": binding.resource,
                "resource_name": binding.name,
                "pattern_type": binding.pattern,
                "principal": binding.principal,
                "host": binding.host,
                "operation": binding.operation,
                "permission_type": binding.permission,
            }
            for binding in bindings
        ],
    }
