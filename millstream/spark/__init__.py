"""Streams and tables of a server as data frames in Spark jobs of your own (docs/spark.md).

    from millstream.spark import MillstreamSource

    spark.dataSource.register(MillstreamSource)
    spark.read.format("millstream").option("url", "http://127.0.0.1:8088").load("clicks_per_minute")

`data_source.py` is the entry point, `source_options.py` has the options. The driver asks the server once how to read a
SELECT (`server_reading.py`), and where partitions begin and end (`offset_ranges.py`). Tasks read partitions through the
Kafka port, decode them, and compute rows as a pull query would (`row_kinds.py`). This is the only place outside of
`executor/spark` that needs PySpark.
"""

from .data_source import MillstreamSource as MillstreamSource
