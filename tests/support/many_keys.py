"""Rows of very many groups for the query of `moved_queries.py`, and whether each was counted once: as columns, since a
million groups are too many to look at one by one."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from millstream.logcore.client import FetchedRows, LogClient, RowRecords

Ints = npt.NDArray[np.int64]

_RECORDS = pa.schema([("timestamp", pa.int64()), ("key", pa.binary()), ("value", pa.binary())])
_WRITE_ROWS = 100_000


@dataclass
class ManyKeys:
    """In: `group_count`: how many groups. State: what was sent, in `groups` and `values`."""

    client: LogClient
    group_count: int
    seed: int
    groups: list[Ints] = field(default_factory=list)
    values: list[Ints] = field(default_factory=list)

    def send_each(self) -> None:
        """A row for each group."""
        self._send(np.random.default_rng(self.seed).permutation(self.group_count))

    def send(self, count: int) -> None:
        """Rows of groups that are drawn."""
        chance = np.random.default_rng([self.seed, len(self.groups)])
        self._send(chance.integers(0, self.group_count, count))

    def differences(self, topic: str) -> list[tuple[int, ...]]:
        """The groups (up to ten) of which the topic does not say: 1, 2, 3, … rows, each once and in this order, and in
        the end the sum of all."""
        sent = pa.table({"g": np.concatenate(self.groups), "v": np.concatenate(self.values)})
        found = self._read(topic)
        with duckdb.connect() as connection:
            connection.register("sent", sent)
            connection.register("found", found)
            return connection.sql(_DIFFERENCES).fetchall()

    def _send(self, groups: Ints) -> None:
        for begin in range(0, len(groups), _WRITE_ROWS):
            part = groups[begin : begin + _WRITE_ROWS]
            values = (part * 7 + begin) % 1_000
            self.groups.append(part)
            self.values.append(values)
            partitions = self.client.partition_count("s")
            for partition in range(partitions):
                self.client.append("s", partition, _records(part[partition::partitions], values[partition::partitions]))

    def _read(self, topic: str) -> pa.Table:
        """g, n, total and the place of each record, in the order of each partition."""
        parts: list[pa.Table] = []
        for partition in range(self.client.partition_count(topic)):
            offset = -1
            fetched = self.client.fetch(topic, partition, 0)
            while fetched.next_offset > offset:
                offset = fetched.next_offset
                for run in fetched.runs:
                    assert isinstance(run, FetchedRows)
                    parts.append(_parsed(run.table))
                fetched = self.client.fetch(topic, partition, offset)
        table = pa.concat_tables(parts)
        return table.append_column("place", pa.array(np.arange(len(table))))


_DIFFERENCES = """
    WITH wanted AS (SELECT g, COUNT(*) AS n, SUM(v)::BIGINT AS total FROM sent GROUP BY g),
    got AS (
        SELECT g, COUNT(*) AS n, arg_max(total, place) AS total,
            list(n ORDER BY place) = range(1, COUNT(*) + 1) AS in_order
        FROM found GROUP BY g
    )
    SELECT * FROM wanted FULL JOIN got USING (g)
    WHERE wanted.n IS DISTINCT FROM got.n OR wanted.total IS DISTINCT FROM got.total OR NOT in_order LIMIT 10
"""


def _records(groups: Ints, values: Ints) -> RowRecords:
    texts = [pa.array(column).cast(pa.string()) for column in (groups, values)]
    value = pc.binary_join_element_wise('{"G":', texts[0], ',"V":', texts[1], "}", "")
    times = pa.array(np.zeros(len(groups), np.int64))
    return RowRecords(pa.table([times, pa.nulls(len(groups), pa.binary()), value.cast(pa.binary())], schema=_RECORDS))


def _parsed(records: pa.Table) -> pa.Table:
    """Keys are the groups, as INTEGER of the format KAFKA."""
    groups = np.frombuffer(b"".join(records["key"].to_pylist()), ">i4").astype(np.int64)
    lines = io.BytesIO(b"\n".join(records["value"].to_pylist()))
    values = pyarrow.json.read_json(lines)
    return pa.table({"g": groups, "n": values["N"].cast(pa.int64()), "total": values["TOTAL"].cast(pa.int64())})
