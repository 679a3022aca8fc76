"""What the driver knows of the homes of a subplan's buckets, and when a bucket moves to another home."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownHomes:
    """Goes with a batch to the tasks. `addresses`: by bucket; a bucket that no worker has opened yet is not in it.
    `most`: how many buckets a worker should have, so that all workers have something to do.

    Workers come later than the first batch: a cluster's executors register one by one, and others are added while a
    query runs. So a bucket moves from a worker with more than `most` to a worker with fewer that gets the bucket's
    task. In a batch only one bucket may leave a worker, because the rest of the batch waits while its state is rebuilt.
    """

    addresses: Mapping[int, str]
    most: int

    @classmethod
    def of(cls, buckets: range, homes: Mapping[int, str], workers: int) -> KnownHomes:
        """Those of a subplan. In: `buckets`: its buckets. `homes`: of all buckets of the query. `workers`: how many
        there are at this moment.

        >>> KnownHomes.of(range(2, 5), {1: "a", 2: "a", 4: "b"}, workers=2)
        KnownHomes(addresses={2: 'a', 4: 'b'}, most=2)
        """
        return cls({each: homes[each] for each in buckets if each in homes}, math.ceil(len(buckets) / max(1, workers)))

    def home_of(self, bucket: int, batch: int, worker: str) -> str:
        """The address of the process that should apply the bucket's share of the batch with this number, if the worker
        with the address `worker` has the task.

        >>> homes = KnownHomes({0: "a", 1: "a", 2: "b"}, most=1)
        >>> [homes.home_of(bucket, 1, "c") for bucket in range(4)]
        ['c', 'a', 'b', 'c']
        >>> [homes.home_of(bucket, 5, "c") for bucket in range(4)]
        ['a', 'c', 'b', 'c']
        """
        home = self.addresses.get(bucket, worker)
        moves = len(self._buckets_of(worker)) < self.most and self._leaves(home, batch) == bucket
        return worker if moves else home

    def _leaves(self, home: str, batch: int) -> int | None:
        """The bucket that may leave this home in this batch, the same in all workers. Drawn, because Spark may give a
        bucket's task to the same worker at regular intervals."""
        buckets = self._buckets_of(home)
        return random.Random(batch).choice(buckets) if len(buckets) > self.most else None

    def _buckets_of(self, address: str) -> list[int]:
        return sorted(bucket for bucket, home in self.addresses.items() if home == address)
