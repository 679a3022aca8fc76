"""Quix Streams counts the words of `lines` into `counts`, exactly once, through a repartition topic.

    quix_counts.py ADDRESS FOLDER

The interpreter is one that has quixstreams.
"""

import sys
from typing import Any

from quixstreams import Application


def counted(line: dict[str, Any], state: Any) -> dict[str, Any]:
    total = state.get("total", 0) + 1
    state.set("total", total)
    return {**line, "total": total}


def main(address: str, folder: str) -> None:
    app = Application(
        broker_address=address,
        consumer_group="quix",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        state_dir=folder,
        commit_interval=1.0,
        producer_extra_config={"transaction.timeout.ms": 60_000, "reconnect.backoff.max.ms": 1_000},
        consumer_extra_config={"reconnect.backoff.max.ms": 1_000},  # well below the session timeout, or it ends
    )
    lines = app.dataframe(app.topic("lines", value_deserializer="json"))
    lines.group_by("word").apply(counted, stateful=True).to_topic(app.topic("counts", value_serializer="json"))
    app.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
