"""The stream KSQL_PROCESSING_LOG over the topic of the processing log. A server creates it if it is configured to."""

from __future__ import annotations

from ...executor import processing_log
from ...logcore.client import LogClient
from ...planner.catalog import Catalog

NAME = "KSQL_PROCESSING_LOG"

STATEMENT = f"""CREATE STREAM {NAME} (
  LOGGER VARCHAR,
  LEVEL VARCHAR,
  TIME BIGINT,
  MESSAGE STRUCT<
    TYPE INTEGER,
    DESERIALIZATIONERROR STRUCT<
      TARGET VARCHAR, ERRORMESSAGE VARCHAR, RECORDB64 VARCHAR, CAUSE ARRAY<VARCHAR>, `TOPIC` VARCHAR,
      `PARTITION` INTEGER, `OFFSET` BIGINT>,
    RECORDPROCESSINGERROR STRUCT<
      ERRORMESSAGE VARCHAR, RECORD VARCHAR, CAUSE ARRAY<VARCHAR>, `TOPIC` VARCHAR, `PARTITION` INTEGER,
      `OFFSET` BIGINT>,
    SERIALIZATIONERROR STRUCT<
      TARGET VARCHAR, ERRORMESSAGE VARCHAR, RECORD VARCHAR, CAUSE ARRAY<VARCHAR>, `TOPIC` VARCHAR,
      `PARTITION` INTEGER, `OFFSET` BIGINT>>
) WITH (KAFKA_TOPIC='{processing_log.TOPIC}', VALUE_FORMAT='JSON');"""


def wanted_statement(catalog: Catalog, log: LogClient) -> str | None:
    """The statement that creates the stream at the start of a server; None if the stream exists.

    Also creates the topic, which otherwise is created with its first record.
    """
    if NAME in catalog.sources:
        return None
    processing_log.create_topic(log)
    return STATEMENT
