"""Homes of buckets: the process in which a bucket's state stays from one batch to the next.

Spark gives a task to whichever Python worker is idle. Without a home, every worker that meets a bucket opens a copy of
its state, and at each turn replays what the others have written: with more workers, more of their time goes into that.

The worker that applies a bucket's first batch becomes its home. The report names the home, and the driver passes the
name on with the next batch (`Round.homes`). A task that gets a bucket with another home sends it the pieces and waits
for the report (`bucket_home.py`, `home_connection.py`). If the home is gone, the task applies the pieces itself, so its
worker becomes the new home. If a worker is home to more buckets than another one, because it was there first, buckets
move (`known_homes.py`).

Nothing depends on there being only one home. A process applies a batch in one transaction, under the bucket's
transactional id, and so fences all other processes (`bucket.py`).
"""
