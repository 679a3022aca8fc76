"""A program that tests kill: writes keys over and over, and keeps house after every few records.

Run with a folder and a count. It prints each number once it is durable.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from millstream.logcore.client import RowRecords
from millstream.logcore.log import open_log

KEYS = 5
CONFIGS = {
    "compacted": {"segment.bytes": "1024", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    "short": {"segment.bytes": "1024", "retention.bytes": "2000"},
}


def record(number: int) -> RowRecords:
    value = None if number % 7 == 3 else b"%0100d" % number
    return RowRecords(pa.table({"timestamp": [number], "key": [b"%d" % (number % KEYS)], "value": [value]}))


def run(folder: str, count: int) -> None:
    log = open_log(folder)
    for topic, config in CONFIGS.items():
        if topic not in log.topics():
            log.create_topic(topic, 1, config)
    for number in range(log.offsets("compacted", 0).log_end_offset, count):
        for topic in CONFIGS:
            if log.offsets(topic, 0).log_end_offset == number:
                log.append(topic, 0, record(number))
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
        if number % 20 == 19:
            log.keep_house()
            assert not log.problems()
    log.close()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
