"""`MillstreamSource`, the class to register with Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from millstream.errors import UnknownColumn, did_you_mean

from .row_kinds import RowKind, row_kind
from .source_options import source_options
from .topic_readers import BatchReader, ReadParts, TopicStreamReader, batch_reader, stream_reader


class MillstreamSource(DataSource):
    """`spark.read.format("millstream")` and `spark.readStream.format("millstream")`, see docs/spark.md."""

    _kind: RowKind | None = None  # is sent with the source to the processes that plan

    @classmethod
    def name(cls) -> str:
        return "millstream"

    def schema(self) -> StructType:
        return _spark_schema(self._rows().schema)

    def reader(self, schema: StructType) -> BatchReader:
        return batch_reader(self._parts(schema))

    def streamReader(self, schema: StructType) -> TopicStreamReader:
        return stream_reader(self._parts(schema))

    def _rows(self) -> RowKind:
        if self._kind is None:
            self._kind = row_kind(source_options(self.options))
        return self._kind

    def _parts(self, schema: StructType) -> ReadParts:
        """In: `schema`: from `schema()`, or given by the user, who may select some of the columns."""
        kind = self._rows()
        known = {field.name: field.dataType for field in _spark_schema(kind.schema).fields}
        for field in schema.fields:
            if field.name not in known:
                hint = did_you_mean(field.name, known) or f"There are {', '.join(known)}."
                raise UnknownColumn(f"there is no column {field.name} in {_shown(self.options)}", hint=hint)
            if known[field.name] != field.dataType:
                raise UnknownColumn(
                    f"the column {field.name} is a {known[field.name].simpleString()}, the schema of the job has "
                    f"{field.dataType.simpleString()}",
                    hint="Leave the schema out: the data source knows it.",
                )
        return ReadParts(kind, source_options(self.options), to_arrow_schema(schema, timezone="UTC"))


def _spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


def _shown(options: Any) -> str:
    found = source_options(options)
    return str(found.name or found.topic)
