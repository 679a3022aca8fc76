"""A session: the properties and variables of one user, and the user's rights. The HTTP server authenticates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...sql.variables import define, undefine
from ..security.rights import Rights


@dataclass(slots=True)
class Session:
    """`properties` by canonical name (see `property_table.py`), `variables` by name as written; case does not matter.

    `asserted`: up to which offset ASSERT VALUES has read a partition of a topic. `rights`: of its user; all rights by
    default. `rows_from`: the routes that answer a SELECT, for the message to a client that used another route.
    `prints_from`: the same of PRINT, which not all of them answer.
    `own_connectors`: statements about connectors refer to those that run here, even if `ksql.connect.url` is set.
    """

    properties: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    asserted: dict[tuple[str, int], int] = field(default_factory=dict)  # ASSERT VALUES: by topic and partition
    rights: Rights = field(default_factory=Rights)
    rows_from: str = "/query or /query-stream"
    prints_from: str = "/query or /query-stream (HTTP), or write it in the shell"
    own_connectors: bool = False

    def settings(self, server: Mapping[str, str]) -> dict[str, str]:
        """The properties for a statement: the session's properties override the server's."""
        return {**server, **self.properties}

    def define(self, name: str, value: str) -> None:
        """DEFINE; also for the variables of a request."""
        define(self.variables, name, value)

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: assertions about a new topic of the same name begin at its start."""
        for place in [place for place in self.asserted if place[0] == topic]:
            del self.asserted[place]

    def undefine(self, name: str) -> bool:
        """UNDEFINE; False if there was no such variable."""
        return undefine(self.variables, name)
