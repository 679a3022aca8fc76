"""The Spark executor: runs the operators of `executor.operators` in the tasks of Spark jobs, one job per batch.

The entry point is `spark_executor.py`. `alignment.py`, `markers.py` and `spark_run.py` do not need Spark, so another
executor can use them to take over a query. The stages (`stages.py`, `stage_one.py`, `bucket.py`) do not need it either;
tests run them in process. Only `spark_session.py` and `spark_jobs.py` use pyspark. The data frames of streams and
tables that users read in their own jobs are in `millstream/spark`.
"""
