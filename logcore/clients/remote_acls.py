"""The ACLs of a log over the network, with the Kafka protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from millstream.errors import LogError

from ..protocol.routing import Router
from ..protocol.security.acl_bindings import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
)
from ..protocol.wire.apis import Api
from ..protocol.wire.faults import error_of
from .remote_admin import check

_DESCRIBING: Final = "describe ACLs"
_DELETING: Final = "delete ACLs"


class RemoteAcls:
    """Any thread may call any method. Each sends one request."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def describe(self, wanted: AclFilter) -> list[AclBinding]:
        """Those that the filter finds. Raises `LogError`, also if the log has no ACLs."""
        answer = self._router.ask(Api.DESCRIBE_ACLS, _fields(wanted))
        check(answer.error_code, answer.error_message, _DESCRIBING)
        return [
            binding
            for place in answer.resources
            for acl in place.acls
            if (binding := _known(place, acl)) is not None
        ]  # fmt: skip

    def create(self, bindings: Sequence[AclBinding]) -> Mapping[AclBinding, LogError]:
        """Returns the errors of those that could not be created."""
        creations = [
            {
                "resource_type": each.resource,
                "resource_name": each.name,
                "resource_pattern_type": each.pattern,
                "principal": each.principal,
                "host": each.host,
                "operation": each.operation,
                "permission_type": each.permission,
            }
            for each in bindings
        ]
        results = self._router.ask(Api.CREATE_ACLS, {"creations": creations}).results
        return {
            binding: error_of(result.error_code, result.error_message, "create an ACL")
            for binding, result in zip(bindings, results, strict=True)
            if result.error_code
        }

    def delete(self, wanted: AclFilter) -> list[AclBinding]:
        """Returns what was deleted. Raises `LogError`."""
        (result,) = self._router.ask(Api.DELETE_ACLS, {"filters": [_fields(wanted)]}).filter_results
        check(result.error_code, result.error_message, _DELETING)
        for each in result.matching_acls:
            check(each.error_code, each.error_message, _DELETING)
        return [binding for each in result.matching_acls if (binding := _known(each, each)) is not None]


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": wanted.pattern,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _known(place: Any, acl: Any) -> AclBinding | None:
    """None for one of a kind that a later Kafka knows."""
    try:
        return AclBinding(
            AclResource(place.resource_type),
            place.resource_name,
            AclPattern(place.pattern_type),
            acl.principal,
            acl.host,
            AclOperation(acl.operation),
            AclPermission(acl.permission_type),
        )
    except ValueError:
        return None
