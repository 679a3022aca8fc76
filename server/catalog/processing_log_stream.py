"""The stream KSQL_PROCESSING_LOG over the topic of the processing log, which a server creates where it is asked to."""

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
    """The statement to run at the start of a server that is asked for the stream; None where the stream is there.

    Creates the topic, which otherwise comes with its first record.
    """
    if NAME in catalog.sources:
        return None
    processing_log.create_topic(log)
    return STATEMENT
