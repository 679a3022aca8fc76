"""ChangeBatch: what flows between operators."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

KEYED = "_keyed"
# The columns of every batch, besides k0… and v0…:
META: dict[str, pa.DataType] = {
    "_seq": pa.int64(),  # orders the input rows of the batch; all output rows of an input row have its _seq
    "_sub": pa.int32(),  # orders rows of the same _seq (an update: -1 before +1)
    "_part": pa.int32(),  # the task: the source's partition; after a Rekey, the partition of the new key
    "_ts": pa.int64(),  # rowtime, ms
    "_weight": pa.int8(),  # +1: the row is added, -1: it is retracted; always +1 in streams
    "_null": pa.bool_(),  # the value as a whole is null (a stream's record without value; a table's deletion)
}
OPTIONAL_META: dict[str, pa.DataType] = {
    "_ws": pa.int64(),  # window start, ms, if the key is windowed
    "_we": pa.int64(),  # window end, ms
    "_st": pa.int64(),  # the task's stream time at this row, ms: largest rowtime of its source, with filtered rows
    "_rowpartition": pa.int32(),  # the record's partition
    "_offset": pa.int64(),
    KEYED: pa.bool_(),  # of a stream's source with several key columns: whether the record has a key, perhaps of NULLs
    "_headers": pa.list_(pa.struct([("KEY", pa.string()), ("VALUE", pa.binary())])),
}


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Rows in the order of (`_seq`, `_sub`), with the stream time that each task has reached after them.

    `stream_time_ms`: task (`_part`) → largest rowtime seen so far, for the tasks whose time this input advanced. It
    counts every record of the input, including those that a filter dropped. An empty batch with a later stream time
    closes windows. `elapsed_ms`: advances the stream time of every task by this, after the sources were idle.
    """

    rows: pa.Table
    stream_time_ms: dict[int, int] = field(default_factory=dict)
    elapsed_ms: int = 0

    def with_rows(self, rows: pa.Table) -> ChangeBatch:
        """A batch with these rows and the times of this one."""
        return ChangeBatch(rows, self.stream_time_ms, self.elapsed_ms)
