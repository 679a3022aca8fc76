"""Names of streams, tables and columns, as PostgreSQL's clients write and see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ....planner.catalog import Catalog
from ....planner.schema import PSEUDO
from ....sql.identifiers import RESERVED, quote_identifier
from ..pg_tokens import PgToken

SCHEMA: Final = "public"


class KnownNames:
    """The names of streams, tables and columns that a statement may refer to: those of the sources that it names.

    In a query, any other name is an alias: there, `"time"` is `time`, as in PostgreSQL. A statement that creates
    something may need the lower-case name.
    """

    def __init__(self, catalog: Catalog, tokens: Sequence[PgToken]) -> None:
        self._in_query = bool(tokens) and (tokens[0].upper in ("SELECT", "WITH") or tokens[0].text == "(")
        said = {name.upper() for token in tokens if (name := token.named) is not None}
        sources = [source for source in catalog.sources.values() if source.name.upper() in said]
        columns = [column.name for source in sources for column in source.schema]
        names = dict.fromkeys([*(source.name for source in sources), *columns, *PSEUDO])
        self._exact = set(names)
        self._columns = {name.upper() for name in columns}
        upper = Counter(name.upper() for name in names)
        self._alone = {name.upper(): name for name in names if upper[name.upper()] == 1}

    def meant(self, token: PgToken, *, not_field: bool) -> str | None:
        """The text for a word or a quoted name; None if it stays unchanged. In: `not_field`: it is not a field of a
        STRUCT."""
        name = token.named
        assert name is not None
        if token.kind == "word":
            upper = name.upper()
            found = None if upper in self._exact or upper in RESERVED else self._alone.get(upper)
            return None if found is None or found == upper else quote_identifier(found)
        if name in self._exact or name != name.lower():
            return None  # unchanged: it is exact, or an unknown name in mixed case
        found = name.upper() if name.upper() in self._exact else self._alone.get(name.upper())
        if found is None and self._in_query and not_field:
            found = name.upper()
        return None if found is None else quote_identifier(found)

    def is_column(self, token: PgToken) -> bool:
        return (token.named or "").upper() in self._columns


def shown_name(name: str) -> str:
    """How PostgreSQL's clients see a name of ours: they fold unquoted names to lower case.

    >>> shown_name("USER_ID"), shown_name("userId")
    ('user_id', 'userId')
    """
    return name.lower() if name == name.upper() else name
