"""Flink SQL reads a topic in Debezium's format to its end, and prints each change as JSON: kind, id, name, credit.

    flink_reads_debezium.py ADDRESS TOPIC JAR

The interpreter is one that has Flink.
"""

import json
import sys

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main(address: str, topic: str, jar: str) -> None:
    configuration = Configuration()
    configuration.set_string("pipeline.jars", f"file://{jar}")
    configuration.set_string("parallelism.default", "1")
    tables = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    )
    tables.execute_sql(f"""CREATE TABLE customers (id INT, name STRING, credit DECIMAL(10, 2)) WITH (
        'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{address}',
        'properties.isolation.level' = 'read_committed', 'scan.startup.mode' = 'earliest-offset',
        'scan.bounded.mode' = 'latest-offset', 'format' = 'debezium-json')""")
    with tables.execute_sql("SELECT id, name, credit FROM customers").collect() as rows:
        for row in rows:
            print("CHANGE" + json.dumps([str(row.get_row_kind()), row[0], row[1], str(row[2])]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
