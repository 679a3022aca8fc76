"""Types that users of PostgreSQL define: a domain is read as the type below it, an array as one of that type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import psycopg

from .pg_connections import explained
from .pg_values import ARRAYS
from .pgoutput import RelationColumn, TableRelation

_FIRST_OF_USERS: Final = 16384  # FirstNormalObjectId: lower numbers are PostgreSQL's own types
_TEXT: Final = 25
_ARRAY_OF: Final = {element: array for array, element in ARRAYS.items()}


class _UserType(NamedTuple):
    """`base`, `modifier`: of a domain; `element`: of an array. 0 where it is neither."""

    base: int
    modifier: int
    element: int


def with_base_types(connection: psycopg.Connection[Any], relation: TableRelation) -> TableRelation:
    """The table with the types below its domains. Other types of users, such as enums, stay: their values are texts.
    Raises like `explained`."""
    known = _user_types(connection, (column.type_oid for column in relation.columns))
    if not known:
        return relation
    return replace(relation, columns=tuple(_resolved(column, known) for column in relation.columns))


def _user_types(connection: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, _UserType]:
    """Domains and arrays among these types, and what these are made of."""
    found: dict[int, _UserType] = {}
    asked = {oid for oid in oids if oid >= _FIRST_OF_USERS}
    while asked:
        with explained("the types of columns"):
            rows = connection.execute(
                """SELECT oid, typbasetype, typtypmod, CASE typcategory WHEN 'A' THEN typelem ELSE 0 END
                   FROM pg_type WHERE oid = ANY (%s)""",
                [list(asked)],
            ).fetchall()
        new = {oid: _UserType(base, modifier, element) for oid, base, modifier, element in rows}
        found |= new
        made_of = {oid for type_ in new.values() for oid in (type_.base, type_.element)}
        asked = {oid for oid in made_of if oid >= _FIRST_OF_USERS and oid not in found}
    return found


def _resolved(column: RelationColumn, known: Mapping[int, _UserType]) -> RelationColumn:
    oid, modifier = _base(column.type_oid, column.modifier, known)
    return replace(column, type_oid=oid, modifier=modifier)


def _base(oid: int, modifier: int, known: Mapping[int, _UserType]) -> tuple[int, int]:
    """The type and its modifier. The one nearest to the column counts."""
    type_ = known.get(oid)
    if type_ is None:
        return oid, modifier
    if type_.base:
        return _base(type_.base, type_.modifier if modifier < 0 else modifier, known)
    if type_.element:
        element, modifier = _base(type_.element, modifier, known)
        return _ARRAY_OF.get(element, _ARRAY_OF[_TEXT]), modifier
    return oid, modifier
