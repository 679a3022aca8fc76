"""The Spark executor: the operators of `executor.operators` in the tasks of Spark jobs, one job for each batch.

`spark_executor.py` is the door. `alignment.py`, `markers.py` and `spark_run.py` need no Spark, so whoever takes a query
over uses them; nor do the stages themselves (`stages.py`, `stage_one.py`, `bucket.py`), which tests run in process.
`spark_session.py` and `spark_jobs.py` are where pyspark comes in. Data frames of streams and tables, for jobs of
people's own, are in `millstream/spark`.
"""
