"""Topics of two logs have different ids, however alike the logs are; a directory keeps the ids that it has.

`golden/ids_of_the_name.tar.gz` was written by a version that derived the ids of topics from the name of the cluster,
which is the same for all servers on their own: topic `orders` with two records, of which group `group` has read one.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Final

from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log

from ..log_records import rows, values_of

GOLDEN: Final = Path(__file__).with_name("golden") / "ids_of_the_name.tar.gz"
WRITTEN_S: Final = 1_795_729_200.0  # so that nothing expires
ID: Final = "971bef7c32cc44018848fe8fd0ed459d"
ORDERS_ID: Final = "80d8d228f9171f3b3a2acd11a128e79a"


def ids_of(folder: Path) -> set[str]:
    with open_log(folder, sync="never") as log:
        for name in ("orders", "customers"):
            log.create_topic(name, 1)
        return {log.served.id, log.served.topic_id("orders"), log.served.topic_id("customers")}


def test_two_servers_on_their_own_have_no_id_in_common(tmp_path: Path) -> None:
    first, second = ids_of(tmp_path / "first"), ids_of(tmp_path / "second")
    assert len(first | second) == 6


def test_a_topic_that_is_made_anew_has_another_id(tmp_path: Path) -> None:
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("orders", 1)
        first = log.served.topic_id("orders")
        log.delete_topic("orders")
        log.create_topic("orders", 1)
        assert log.served.topic_id("orders") != first


def test_ids_stay_when_a_log_is_opened_again(tmp_path: Path) -> None:
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("orders", 1)
        before = log.served.id, log.served.topic_id("orders")
    with open_log(tmp_path, sync="never") as log:
        assert (log.served.id, log.served.topic_id("orders")) == before


def opened(folder: Path) -> Log:
    return open_log(folder / "log", clock=lambda: WRITTEN_S)


def test_a_directory_of_a_version_before_keeps_its_ids_and_gives_new_topics_its_own(tmp_path: Path) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    for start in range(2):
        with opened(tmp_path) as log:
            assert (log.served.id, log.served.topic_id("orders")) == (ID, ORDERS_ID)
            assert log.served.topic_name(bytes.fromhex(ORDERS_ID)) == "orders"
            assert values_of(log, "orders") == [b"one", b"two", *[b"more"] * start]
            assert log.committed_offsets("group") == {TopicPartition("orders", 0): 1 + start}
            log.append("orders", 0, rows(b"more"))
            log.commit_offsets("group", {TopicPartition("orders", 0): 2})
            log.create_topic(f"new-{start}", 1)
            assert log.node.image.topic_ids[f"new-{start}"].startswith(f"{ID}-")
