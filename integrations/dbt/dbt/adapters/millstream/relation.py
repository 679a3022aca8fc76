"""Streams and tables as dbt's relations.

A server has one namespace, and unquoted names are in upper case there. dbt shows names without lower-case letters in
lower case, and quotes all others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt.adapters.base import BaseRelation
from dbt.adapters.contracts.relation import Policy
from dbt.adapters.utils import classproperty
from dbt_common.dataclass_schema import StrEnum

DATABASE = "millstream"
SCHEMA = "public"


class MillstreamRelationType(StrEnum):
    """dbt's own types, and streams."""

    Stream = "stream"
    Table = "table"
    CTE = "cte"
    View = "view"
    External = "external"
    Ephemeral = "ephemeral"


@dataclass
class MillstreamQuotePolicy(Policy):
    database: bool = False
    schema: bool = False
    identifier: bool = False


@dataclass
class MillstreamIncludePolicy(Policy):
    database: bool = False
    schema: bool = False
    identifier: bool = True


@dataclass(frozen=True, eq=False, repr=False)
class MillstreamRelation(BaseRelation):
    type: MillstreamRelationType | None = None
    quote_character: str = "`"
    include_policy: Policy = field(default_factory=MillstreamIncludePolicy)
    quote_policy: Policy = field(default_factory=MillstreamQuotePolicy)

    @classproperty
    def get_relation_type(cls) -> type[MillstreamRelationType]:  # pyrefly: ignore[unsupported-operation]
        return MillstreamRelationType

    @property
    def stored_name(self) -> str:
        """The name in the server's catalog."""
        name = self.identifier or ""
        return name if self.quote_policy.identifier else name.upper()

    def quoted(self, identifier: str) -> str:
        return quoted(identifier)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def shown_name(stored: str) -> str:
    """A name of the catalog, as dbt shows it."""
    return stored.lower() if stored == stored.upper() else stored
