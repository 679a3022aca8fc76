"""ChangeBatch: what flows between operators."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

# The columns of every batch, besides k0… and v0…:
META: dict[str, pa.DataType] = {
    "_seq": pa.int64(),  # orders the input rows of the batch; the rows that one input row gives share it
    "_sub": pa.int32(),  # orders rows of the same _seq (an update: -1 before +1)
    "_part": pa.int32(),  # the task: the source's partition, after a Rekey that of the new key
    "_ts": pa.int64(),  # rowtime, ms
    "_weight": pa.int8(),  # +1 a row appears, -1 it is retracted; always +1 in streams
    "_null": pa.bool_(),  # the value as a whole is null (a stream's record without value; a table's deletion)
}
OPTIONAL_META: dict[str, pa.DataType] = {
    "_ws": pa.int64(),  # window start, ms, where the key is windowed
    "_we": pa.int64(),  # window end, ms
    "_st": pa.int64(),  # the task's stream time at this row, ms: its source's largest rowtime, filtered rows too
    "_rowpartition": pa.int32(),  # where the record came from
    "_offset": pa.int64(),
    "_headers": pa.list_(pa.struct([("KEY", pa.string()), ("VALUE", pa.binary())])),
}


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Rows in the order of (`_seq`, `_sub`), with the stream time each task has reached after them.

    `stream_time_ms`: task (`_part`) → largest rowtime seen so far, as far as this input moved it. It counts every
    record of the input, also those that a filter dropped. An empty batch with a later stream time closes windows.
    `elapsed_ms`: the sources brought nothing for so long that the stream time of every task moves on by this.
    """

    rows: pa.Table
    stream_time_ms: dict[int, int] = field(default_factory=dict)
    elapsed_ms: int = 0

    def with_rows(self, rows: pa.Table) -> ChangeBatch:
        """Other rows of the same input."""
        return ChangeBatch(rows, self.stream_time_ms, self.elapsed_ms)
