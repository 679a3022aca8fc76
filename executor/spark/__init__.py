"""The Spark executor: the operators of `executor.operators` in the tasks of Structured Streaming queries.

`executor.py` is the door. `alignment.py` and `markers.py` need no Spark: whoever takes a query over uses them. Only
`session.py`, `data_source.py`, `topic_source.py` and `progress_sink.py` know pyspark.
"""
