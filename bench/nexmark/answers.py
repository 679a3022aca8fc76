"""DuckDB over the whole of the events: what the answers of the batch queries can name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from .events import ARRIVAL_MS, STREAMS, Events, FileFormat
from .topics import SIDE_INPUT_KEYS

_TYPES: Final = {
    "person": "id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR, city VARCHAR, state VARCHAR, "
    "dateTime BIGINT, extra VARCHAR",
    "auction": "id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT, reserve BIGINT, dateTime BIGINT, "
    "expires BIGINT, seller BIGINT, category BIGINT, extra VARCHAR",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, dateTime BIGINT, extra VARCHAR",
}
_TIMES: Final = ("dateTime", "expires")

# A row is in every window that it falls into, and has the bounds as `window_start` and `window_end`.
_MACROS: Final = """
CREATE MACRO hops(source, slide_ms, size_ms) AS TABLE
  SELECT rows.*, make_timestamp(begins * 1000) AS window_start, make_timestamp((begins + size_ms) * 1000) AS window_end
  FROM query_table(source) rows,
    UNNEST(range(epoch_ms(dateTime) // slide_ms * slide_ms, epoch_ms(dateTime) - size_ms, -slide_ms)) windows(begins);
CREATE MACRO sessions(source, who, gap_ms) AS TABLE
  SELECT *, min(dateTime) OVER own AS window_start, max(dateTime) OVER own + to_milliseconds(gap_ms) AS window_end
  FROM (
    SELECT *, sum(begins) OVER (PARTITION BY who ORDER BY dateTime) AS session
    FROM (
      SELECT *, CAST(coalesce(epoch_ms(dateTime) - epoch_ms(lag(dateTime) OVER before) > gap_ms, true) AS INT) AS begins
      FROM query_table(source)
      WINDOW before AS (PARTITION BY who ORDER BY dateTime)))
  WINDOW own AS (PARTITION BY who, session);
"""


def batch_engine(events: Events, format: FileFormat) -> duckdb.DuckDBPyConnection:
    """The streams as views over files; `bid` has the time of arrival too, as `arrived`."""
    connection = duckdb.connect()
    for stream in STREAMS:
        if format == "arrow":
            parts = [events.columns(stream, partition) for partition in range(events.partitions)]
            connection.register(f"{stream}_file", pa.concat_tables(parts))
            rows = f"{stream}_file"
        else:
            rows = _json_files(stream, events.paths(stream, format))
        times = [name for name in _TIMES if f"{name} BIGINT" in _TYPES[stream]]
        as_times = ", ".join(f"{_as_time(name, format)} AS {name}" for name in times)
        arrived = f", epoch_ms(dateTime) + {ARRIVAL_MS} AS arrived" if stream == "bid" else ""
        typed = f"SELECT * REPLACE ({as_times}) FROM {rows}"
        connection.execute(f"CREATE VIEW {stream} AS SELECT *{arrived} FROM ({typed})")
    connection.execute(
        f"CREATE TABLE side_input AS SELECT range AS key, 'value of ' || range AS value FROM range({SIDE_INPUT_KEYS})"
    )
    connection.execute(_MACROS)
    return connection


def _as_time(name: str, format: FileFormat) -> str:
    return f"make_timestamp({name} * 1000)" if format == "ndjson" else f"CAST({name} AS TIMESTAMP)"


def _json_files(stream: str, paths: list[Path]) -> str:
    names = ", ".join("'" + str(path).replace("'", "''") + "'" for path in paths)
    types = ", ".join(f"{column.split()[0]}: '{column.split()[1]}'" for column in _TYPES[stream].split(", "))
    return f"read_json([{names}], format = 'newline_delimited', columns = {{{types}}})"
