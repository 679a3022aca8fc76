"""SQL over streams: ksqlDB's dialect on DuckDB and PySpark, with a Kafka-compatible log inside.

    import millstream

    ms = millstream.connect()
    ms.sql("CREATE TABLE totals AS SELECT user, COUNT(*) AS n FROM clicks GROUP BY user;")
    ms.sql("SELECT * FROM totals;").df()

`connect` is in `connection.py`; `millstream.testing` is for tests of pipelines; in notebooks use `%load_ext
millstream`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connection import Connection, connect
    from .functions import aggregate, register, scalar, table_function
    from .relation import Relation

__all__ = ["Connection", "Relation", "aggregate", "connect", "register", "scalar", "table_function"]

# Every package imports `millstream.errors` and thereby this file, so this file imports no packages itself.
_HOMES = {
    "Connection": "connection", "Relation": "relation", "connect": "connection",
    "aggregate": "functions", "register": "functions", "scalar": "functions", "table_function": "functions",
    "load_ipython_extension": "notebook", "unload_ipython_extension": "notebook",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    collector: Any = importlib.import_module(".sql.collector", __name__)
    with collector.importing():
        return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
