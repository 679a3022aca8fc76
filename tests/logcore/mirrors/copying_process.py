"""A process that copies until it is killed: folder of the copy, address of the source, mode."""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.logcore.external.kafka_properties import KafkaProperties
from millstream.logcore.log import open_log
from millstream.logcore.mirrors.exact_mirror import ExactMirror, ExactMirrorSettings
from millstream.logcore.mirrors.mirror_source import MirrorSource, TopicFilter
from millstream.logcore.mirrors.renamed_mirror import RenamedMirror, RenamedMirrorSettings


def copy_for_ever(folder: Path, address: str, mode: str) -> None:
    everything = TopicFilter(("*",))
    with open_log(folder) as log:
        source = MirrorSource(KafkaProperties({"bootstrap.servers": address}))
        if mode == "exact":
            mirror = ExactMirror(log, source, ExactMirrorSettings("m", everything, everything, look_ms=200))
        else:
            settings = RenamedMirrorSettings("m", "a", "b", everything, everything, look_ms=200)
            mirror = RenamedMirror(log, source, settings)
        print("copies", flush=True)
        while True:
            mirror.step(0.1)


if __name__ == "__main__":
    copy_for_ever(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
