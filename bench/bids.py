"""The data: bids of an auction house, as JSON of about 110 bytes, the same for the same seed.

10,000 bids come in a second of event time, on 10,000 auctions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa

AUCTIONS: Final = 10_000
WINDOW_MS: Final = 60_000
PRICE_ABOVE: Final = 50_000  # half of the bids
COLUMNS: Final = "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts BIGINT"
_BIDS_PER_MS: Final = 10
_BEGIN_MS: Final = 1_700_000_040_000  # a full minute
_CHANNELS: Final = ("apple", "google", "facebook", "baidu")

_AS_JSON = """
SELECT ts AS timestamp, CAST(NULL AS BLOB) AS key, CAST(
  '{"auction":' || auction || ',"bidder":' || bidder || ',"price":' || price || ',"channel":"' || channel
  || '","url":"https://x.org/' || auction || '","ts":' || ts || '}' AS BLOB) AS value
FROM columns
"""


def bids(rows: int, seed: int, first: int = 0) -> pa.Table:
    """Records to append: `timestamp`, `key` (null), `value`. Bid number `first` comes first."""
    random = np.random.default_rng((seed, first))
    columns = pa.table(
        {
            "auction": random.integers(0, AUCTIONS, rows),
            "bidder": random.integers(0, 100_000, rows),
            "price": random.integers(1, 2 * PRICE_ABOVE, rows),
            "channel": pa.array(_CHANNELS).take(pa.array(random.integers(0, len(_CHANNELS), rows))),
            "ts": _BEGIN_MS + (first + np.arange(rows)) // _BIDS_PER_MS,
        }
    )
    with duckdb.connect() as connection:
        connection.register("columns", columns)
        return connection.sql(_AS_JSON).to_arrow_table().combine_chunks()


def write_ndjson(table: pa.Table, path: Path) -> None:
    """The values as lines of a file."""
    with path.open("wb") as file:
        file.writelines(value + b"\n" for value in table["value"].to_pylist())
