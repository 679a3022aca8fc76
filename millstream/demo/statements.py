"""The statements of the demo."""

from __future__ import annotations

from typing import Final

DEPARTURES: Final = "departures"  # topics
PLANES: Final = "planes"
NAMED: Final = "DEPARTURES_NAMED"

SOURCES: Final = (
    """CREATE TABLE airlines (carrier STRING PRIMARY KEY, name STRING)
  WITH (KAFKA_TOPIC='airlines', VALUE_FORMAT='JSON', PARTITIONS=1);""",
    f"""CREATE TABLE planes (tailnum STRING PRIMARY KEY, manufacturer STRING, model STRING, seats INT)
  WITH (KAFKA_TOPIC='{PLANES}', VALUE_FORMAT='JSON', PARTITIONS=1);""",
    f"""CREATE STREAM departures (id INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
                          delay DOUBLE)
  WITH (KAFKA_TOPIC='{DEPARTURES}', VALUE_FORMAT='JSON', PARTITIONS=1);""",
)

QUERIES: Final = (
    """CREATE TABLE delays_per_hour AS
  SELECT origin, COUNT(*) AS flights, COUNT(delay) AS departed, AVG(delay) AS mean_delay, MAX(delay) AS worst_delay
  FROM departures WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 24 HOURS) GROUP BY origin EMIT CHANGES;""",
    """CREATE TABLE delays_in_three_hours AS
  SELECT origin, COUNT(*) AS flights, AVG(delay) AS mean_delay
  FROM departures WINDOW HOPPING (SIZE 3 HOURS, ADVANCE BY 1 HOUR, GRACE PERIOD 24 HOURS)
  GROUP BY origin EMIT CHANGES;""",
    """CREATE STREAM departures_named AS
  SELECT d.carrier, d.id AS id, d.flight AS flight, d.dest AS dest, d.delay AS delay, a.name AS airline
  FROM departures d LEFT JOIN airlines a ON d.carrier = a.carrier EMIT CHANGES;""",
    """CREATE TABLE makers AS
  SELECT p.manufacturer AS maker, COUNT(*) AS flights, SUM(p.seats) AS seats
  FROM departures d JOIN planes p ON d.tailnum = p.tailnum GROUP BY p.manufacturer EMIT CHANGES;""",
)

PULL: Final = "SELECT * FROM makers WHERE maker = 'BOEING';"
HOURS: Final = "SELECT origin, WINDOWSTART, flights, departed, mean_delay, worst_delay FROM delays_per_hour;"
THREE_HOURS: Final = "SELECT origin, WINDOWSTART, flights, mean_delay FROM delays_in_three_hours;"
MAKERS: Final = "SELECT maker, flights, seats FROM makers;"


def insert_airline(rowtime_ms: int, carrier: str, name: str) -> str:
    """One row of the table."""
    text = name.replace("'", "''")
    return f"INSERT INTO airlines (ROWTIME, carrier, name) VALUES ({rowtime_ms}, '{carrier}', '{text}');"
