"""Key columns that a query does not select, if it is allowed not to.

ksqlDB requires every key column in the SELECT list. In a subquery, unselected key columns are hidden columns. A
statement that ksqlDB does not support need not select them either: then a stream has no key, and a table gets them as
additional columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..expressions.typed import Typed
from ..logical import Named
from ..specs import Kind
from .subqueries import hidden


def hidden_keys(keys: Sequence[tuple[str, Typed]], chosen: Mapping[int, str]) -> tuple[Named, ...]:
    """The key columns under the names `chosen` for them, the others under hidden names. In: `keys`: the text of each
    key column in messages, and its expression."""
    taken: set[str] = set()
    named: list[Named] = []
    for i, (written, key) in enumerate(keys):
        name = chosen.get(i) or hidden(_free(_plain(written), taken))
        taken.add(name.removeprefix(hidden("")))
        named.append(Named(name, key))
    return tuple(named)


def loose_keys(
    kind: Kind, keys: Sequence[tuple[str, Typed]], chosen: Mapping[int, str], selected: Sequence[Named]
) -> tuple[tuple[Named, ...], tuple[Named, ...]]:
    """Key and value columns of a stream or table. In: `keys`: the text of each key column in messages, and its
    expression; `selected`: in order."""
    if kind == "STREAM":
        return (), tuple(selected)
    taken = {named.name for named in selected}
    named_keys: list[Named] = []
    for i, (written, key) in enumerate(keys):
        name = chosen.get(i) or _free(_plain(written), taken)
        taken.add(name)
        named_keys.append(Named(name, key))
    of_keys = set(chosen.values())
    return tuple(named_keys), tuple(named for named in selected if named.name not in of_keys)


def _plain(written: str) -> str:
    """A name for a key column: its own if users can write it, else ROWKEY."""
    name = written.replace(".", "_").replace("`", "")
    if name.startswith(hidden("join")):
        return "ROWKEY"
    name = name.replace(hidden(""), "")
    return name if name.replace("_", "").isalnum() and not name[0].isdigit() else "ROWKEY"


def _free(name: str, taken: set[str]) -> str:
    free, number = name, 0
    while free in taken:
        number += 1
        free = f"{name}_{number}"
    return free
