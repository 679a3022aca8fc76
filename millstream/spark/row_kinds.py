"""The contents of a data frame: the rows of a stream or table, or the records of a topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from millstream.errors import UnknownSource
from millstream.executor.answers.source_rows import SourceRows
from millstream.executor.errors import QueryFailed
from millstream.executor.record_error import RecordError, left_out
from millstream.executor.spark.lanes import LaneRange
from millstream.logcore.client import LogClient
from millstream.logcore.errors import LogUnavailable
from millstream.logcore.remote import log_at

from .column_types import spark_type, with_texts_of_times
from .raw_topic import topic_rows, topic_schema
from .server_reading import DescribedSource, described_source, log_address
from .source_options import SourceOptions

_log: Final = logging.getLogger("millstream.spark")


class RowKind(Protocol):
    """Is sent to tasks. `whole_partitions`: a partition has to be read as a whole, because its rows are the state at
    its end. `topic_id`: None if it is unknown."""

    @property
    def bootstrap(self) -> str: ...

    @property
    def topic(self) -> str: ...

    @property
    def topic_id(self) -> str | None: ...

    @property
    def whole_partitions(self) -> bool: ...

    @property
    def schema(self) -> pa.Schema:
        """The schema of the tables that `read` returns."""
        ...

    def read(self, log: LogClient, part: LaneRange) -> Iterator[pa.Table]:
        """The rows of these offsets."""
        ...


@dataclass(frozen=True)
class SourceKind:
    """Implements `RowKind` for a stream or table."""

    described: DescribedSource
    fail_fast: bool

    @property
    def bootstrap(self) -> str:
        return self.described.bootstrap

    @property
    def topic(self) -> str:
        return self.described.reading.source.topic

    @property
    def topic_id(self) -> str | None:
        return self.described.topic_id

    @property
    def whole_partitions(self) -> bool:
        reading = self.described.reading
        return reading.source.kind == "TABLE" and not reading.changes

    @property
    def schema(self) -> pa.Schema:
        columns = self.described.reading.schema
        return pa.schema([(column.name, spark_type(column.type.arrow)) for column in columns])

    def read(self, log: LogClient, part: LaneRange) -> Iterator[pa.Table]:
        with SourceRows(self.described.reading, log, self._unreadable, self.described.schema) as rows:
            for table in rows.read(part.lane, part.start, part.end):
                yield with_texts_of_times(table)

    def _unreadable(self, errors: Sequence[RecordError]) -> None:
        count = left_out(errors)
        if not count:
            return
        first = errors[0]
        where = f"offset {first.offset} of partition {first.partition} of topic {first.topic}: {first.message}"
        if self.fail_fast:
            hint = "Leave the option mode out to have such records left out."
            raise QueryFailed(f"the record at {where}", hint=hint)
        _log.warning("records left out: %d, the first one at %s", count, where)


@dataclass(frozen=True)
class TopicKind:
    """Implements `RowKind` for the records of a topic."""

    topic: str
    bootstrap: str = field(repr=False)  # contains the user's password
    topic_id: str | None
    schema: pa.Schema
    whole_partitions: bool = False

    def read(self, log: LogClient, part: LaneRange) -> Iterator[pa.Table]:
        return topic_rows(log, part.lane, part.start, part.end)


def row_kind(options: SourceOptions) -> RowKind:
    """Asks the server, or the log. Raises `MillstreamError`."""
    if options.topic is None:
        return SourceKind(described_source(options), options.fail_fast)
    bootstrap = log_address(options, None, None)
    with reached_log(bootstrap) as log:
        if log.topic(options.topic) is None:
            raise UnknownSource(f"there is no topic {options.topic} that may be read", hint="Look at SHOW ALL TOPICS.")
        topic_id = log.topic_id(options.topic)
        schema = topic_schema(log, options.topic)
        return TopicKind(options.topic, bootstrap, None if topic_id is None else str(topic_id), schema)


@contextlib.contextmanager
def reached_log(bootstrap: str) -> Generator[LogClient]:
    """The log, opened by `log_at`. Its errors have a hint if the log does not answer."""
    try:
        with log_at(bootstrap) as log:
            yield log
    except LogUnavailable as error:
        address = bootstrap.rpartition("@")[2]
        hint = (
            f'Spark\'s hosts ask for it at {address}: start it, or name another address, .option("kafka", "HOST:PORT").'
        )
        raise LogUnavailable(f"the log cannot be reached: {error.message}", hint=hint) from error
