"""Settings of nodes, groups, clients and users, and ACLs. Each is a resource, and this module builds its name.

The metadata log stores the settings under these names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

ALL_TOPICS: Final = ""
ALL_BROKERS: Final = "broker:"
GROUP: Final = "group:"
CLIENT: Final = "client:"
USER: Final = "user:"
ACLS: Final = "acls:"
"""The ACLs: the name of each setting is one (`AclBinding.text`), and its value is empty."""

Changes = Mapping[str, str | None]
"""Settings to change; None removes a setting."""

ClientEntity = Mapping[str, str | None]
"""Who a quota applies to: `user`, `client-id` or both. A value of None means all that have no quota of their own."""


def of_broker(node: int | None) -> str:
    """In: `node`: None means the defaults of all brokers."""
    return ALL_BROKERS if node is None else f"{ALL_BROKERS}{node}"


def of_group(name: str) -> str:
    return f"{GROUP}{name}"


def of_client(entity: ClientEntity) -> str:
    """
    >>> of_client({"user": "ana", "client-id": None})
    'client:{"client-id":null,"user":"ana"}'
    """
    return CLIENT + json.dumps(dict(entity), sort_keys=True, separators=(",", ":"))


def client_of(resource: str) -> ClientEntity:
    """
    >>> client_of(of_client({"client-id": "importer"}))
    {'client-id': 'importer'}
    """
    return json.loads(resource.removeprefix(CLIENT))


def of_user(name: str) -> str:
    return f"{USER}{name}"


def with_changes(
    known: Mapping[str, Mapping[str, str]], resource: str, changes: Changes
) -> Mapping[str, Mapping[str, str]]:
    """`known` after these changes. A resource without settings is removed.

    >>> with_changes({"group:g": {"a": "1"}}, "group:g", {"a": None, "b": "2"})
    {'group:g': {'b': '2'}}
    >>> with_changes({"group:g": {"a": "1"}}, "group:g", {"a": None})
    {}
    """
    settings = {name: value for name, value in {**known.get(resource, {}), **changes}.items() if value is not None}
    others = {name: kept for name, kept in known.items() if name != resource}
    return {**others, resource: settings} if settings else others
