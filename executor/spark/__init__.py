"""The Spark executor: the operators of `executor.operators` in the tasks of Structured Streaming queries.

`executor.py` is the door. `alignment.py` and `markers.py` need no Spark: whoever takes a query over uses them. So do
the stages themselves (`stages.py`, `stage_one.py`), which tests run in process; `session.py`, `streaming.py` and the
data sources (`data_source.py`, `topic_source.py`) are where pyspark comes in.
"""
