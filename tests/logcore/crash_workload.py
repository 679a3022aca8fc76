"""A program that tests kill: copies numbers into topic "out" in transactions, one number a transaction.

Run with a folder and a count. It goes on where the committed offset says, and prints each number once its commit
has returned.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from millstream.logcore.client import RowRecords, TopicPartition
from millstream.logcore.log import open_log

SOURCE = TopicPartition("out", 0)


def run(folder: str, count: int) -> None:
    log = open_log(folder)
    if "out" not in log.topics():
        log.create_topic("out", 2, {"segment.bytes": "1024"})
    producer = log.transactional_producer("query")
    for number in range(log.committed_offsets("query").get(SOURCE, 0), count):
        producer.begin()
        for partition in range(2):
            table = pa.table({"timestamp": [number], "key": [b"k"], "value": [b"%0300d" % number]})
            producer.append("out", partition, RowRecords(table))
        producer.send_offsets("query", {SOURCE: number + 1})
        producer.commit()
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
    log.close()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
