"""The metadata log of a node, cut where a frame ends: nobody goes on without what was decided."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from forked import run_forked
from waiting import eventually

from millstream.logcore.cluster.node_log import NodeLog
from millstream.logcore.errors import CorruptLog
from millstream.logcore.log import open_log
from millstream.logcore.replication.machine import NodeId
from millstream.logcore.replication.raft.quorum_frames import MARK, frames

from ..log_records import rows, values_of
from .nodes import Cluster

_LIFE: Final = """
import os
from millstream.logcore.log import open_log
from tests.logcore.log_records import rows
for life in range(2):
    log = open_log(folder)
    for number in range(4):
        log.create_topic(f"t{life}{number}", 1)
        log.append(f"t{life}{number}", 0, rows(b"%d" % number))
    log.delete_topic(f"t{life}0")
    if life and end == "killed":
        os.kill(os.getpid(), 9)
    log.close()
"""
_TOPICS: Final = {"t01", "t02", "t03", "t11", "t12", "t13"}


def _live(folder: Path, end: str) -> None:
    assert run_forked(_LIFE, folder=str(folder), end=end) == (-signal.SIGKILL if end == "killed" else 0)


def _content(folder: Path) -> Mapping[str, bytes]:
    files = (path for name in ("quorum", "replicas") for path in (folder / name).rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files if "-delete" not in path.parent.name}


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_metadata_log_that_was_shortened_is_refused_and_left_as_it_is(tmp_path: Path, end: str) -> None:
    """At each frame's end, and in the middle of each frame, in a copy of the directory."""
    folder = tmp_path / "log"
    _live(folder, end)
    content = (folder / "quorum" / "quorum-log").read_bytes()
    found = list(frames(content))
    whole = max(frame.end for frame in found if frame.term != MARK)
    cuts = {place for frame in found for place in (frame.end, (frame.position + frame.end) // 2)}
    for place in sorted(cut for cut in cuts if cut < whole):
        copy = shutil.copytree(folder, tmp_path / "copy")
        (copy / "quorum" / "quorum-log").write_bytes(content[:place])
        before = _content(copy)
        with pytest.raises(CorruptLog, match=r"the metadata in .* are damaged") as refused:
            open_log(copy)
        assert refused.value.hint is not None and "backup" in refused.value.hint
        assert _content(copy) == before, f"cut at {place}"
        (copy / "quorum" / "quorum-log").write_bytes(content)
        if place % 7 == 0:
            with open_log(copy) as log:
                assert set(log.topics()) == _TOPICS
                assert values_of(log, "t13") == [b"3"]
        shutil.rmtree(copy)


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("name", ["quorum-log", "quorum-state", "quorum-durable"])
def test_a_file_of_the_metadata_that_is_missing_or_empty_is_noticed_or_says_nothing(
    tmp_path: Path, name: str, end: str
) -> None:
    _live(tmp_path / "log", end)
    for emptied in (True, False):
        copy = shutil.copytree(tmp_path / "log", tmp_path / f"copy-{emptied}")
        (copy / "quorum" / name).unlink()
        if emptied:
            (copy / "quorum" / name).touch()
        if name != "quorum-durable":
            with pytest.raises(CorruptLog):
                open_log(copy)
            continue
        with open_log(copy) as log:
            assert set(log.topics()) == _TOPICS


def test_metadata_that_are_all_gone_are_refused(tmp_path: Path) -> None:
    _live(tmp_path, "closed")
    for path in (tmp_path / "quorum").iterdir():
        path.unlink()
    before = _content(tmp_path)
    with pytest.raises(CorruptLog, match="quorum is missing"):
        open_log(tmp_path)
    assert _content(tmp_path) == before


def test_without_syncs_nothing_is_known_of_what_was_safe(tmp_path: Path) -> None:
    """The end of the machine may take any part of the metadata, and none of it was promised."""
    with open_log(tmp_path) as log:
        log.create_topic("t", 1)
    with open_log(tmp_path, sync="never") as log:
        log.create_topic("u", 1)
    content = (tmp_path / "quorum" / "quorum-log").read_bytes()
    ends = [frame.end for frame in frames(content) if frame.term != MARK]
    (tmp_path / "quorum" / "quorum-log").write_bytes(content[: ends[-2]])
    with open_log(tmp_path, sync="never") as log:
        log.append("t", 0, rows(b"a"))


def test_a_voter_that_lost_what_it_had_confirmed_does_not_vote(cluster: Cluster) -> None:
    """One of three: the others go on, and it says what to do."""
    client = NodeLog(cluster.running[1].parts)
    for number in range(3):
        client.create_topic(f"t{number}", 1)
    eventually(lambda: cluster.running[2].parts.log.topic("t2"))
    cluster.kill(2)
    path = cluster.settings[NodeId(2)].folder / "quorum" / "quorum-log"
    ends = [frame.end for frame in frames(path.read_bytes()) if frame.term != MARK]
    path.write_bytes(path.read_bytes()[: ends[-3]])
    with pytest.raises(CorruptLog, match="was safe up to entry") as refused:
        cluster.start(2)
    assert refused.value.hint is not None and "out of the cluster" in refused.value.hint
    client.create_topic("goes-on", 1)
