"""Flink SQL between topics, exactly once: `copies` gets each line of `lines`, `counts` how often each word has come.

    flink_counts.py ADDRESS FOLDER JAR NAMING

It continues from the last checkpoint in FOLDER. NAMING is how Flink names its transactions: INCREMENTING (a new id for
each checkpoint; after a start it tries the ids that may be open) or POOLING (ids are used again; after a start it asks
the log which transactions are open). The interpreter is one that has Flink.
"""

import sys
from pathlib import Path

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

PARALLELISM = 2


def settings(folder: Path, jar: str) -> Configuration:
    configuration = Configuration()
    values = {
        "pipeline.jars": f"file://{jar}",
        "parallelism.default": str(PARALLELISM),
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.timeout": "30 s",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
        "execution.checkpointing.dir": f"file://{folder}",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.num-retained": "3",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "1 s",
        "table.exec.sink.upsert-materialize": "NONE",
        "taskmanager.memory.network.max": "64 mb",
        "taskmanager.memory.managed.size": "64 mb",
    }
    checkpoints = [found.parent for found in folder.glob("*/chk-*/_metadata")]
    if checkpoints:
        values["execution.state-recovery.path"] = f"file://{max(checkpoints, key=lambda each: each.stat().st_mtime)}"
    for name, value in values.items():
        configuration.set_string(name, value)
    return configuration


def main(address: str, folder: Path, jar: str, naming: str) -> None:
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings(folder, jar)).build()
    )
    log = f"'properties.bootstrap.servers' = '{address}', 'format' = 'json'"
    once = f"""'sink.delivery-guarantee' = 'exactly-once', 'sink.transaction-naming-strategy' = '{naming}',
        'properties.transaction.timeout.ms' = '600000'"""
    line = "(word STRING, number BIGINT)"
    tables.execute_sql(f"""CREATE TABLE lines {line} WITH ('connector' = 'kafka', 'topic' = 'lines', {log},
        'scan.startup.mode' = 'earliest-offset', 'properties.isolation.level' = 'read_committed')""")
    tables.execute_sql(f"""CREATE TABLE copies {line} WITH ('connector' = 'kafka', 'topic' = 'copies', {log},
        {once}, 'sink.transactional-id-prefix' = 'copies')""")
    tables.execute_sql(f"""CREATE TABLE counts (word STRING, total BIGINT, PRIMARY KEY (word) NOT ENFORCED)
        WITH ('connector' = 'upsert-kafka', 'topic' = 'counts', {log.replace("'format'", "'value.format'")},
        'key.format' = 'raw', {once}, 'sink.transactional-id-prefix' = 'counts')""")
    statements = tables.create_statement_set()
    statements.add_insert_sql("INSERT INTO copies SELECT word, number FROM lines")
    statements.add_insert_sql("INSERT INTO counts SELECT word, COUNT(*) FROM lines GROUP BY word")
    statements.execute().wait()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
