"""Random damage to any file of a node that is alone: what it answers then is right, or an error that says what to do.

A prepared directory has topics of each kind, transactions, a group and a topic that was deleted. A trial copies it,
harms one file or takes a folder away, opens it, asks everything, writes more and asks again. By hand:

    PYTHONPATH=tests/support python -m tests.logcore.cluster.node_damage closed 0 300
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from file_damage import damage_file

from millstream.errors import MillstreamError
from millstream.logcore.client import TopicPartition
from millstream.logcore.log import Log, open_log

from ..damage import Served, read_all
from ..log_records import columnar, rows

End = Literal["closed", "killed"]
_TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {"segment.bytes": "2048"},
    "large": {},
    "compacted": {"segment.bytes": "1024", "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
    "rests": {},
}
_PLACES: Final = [TopicPartition(topic, partition) for topic in _TOPICS for partition in (0, 1)]
_GROUP: Final = "g"
_STABLE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Prepared:
    """`folder`: as the node left it; `older`: as it was half way. `written`: what readers of committed records get;
    `compacted`: what they got before it was compacted, which is as right."""

    folder: Path
    older: Path
    written: Mapping[TopicPartition, Served]
    compacted: Mapping[TopicPartition, Served]
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    epoch: int


@dataclass(slots=True)
class Trial:
    """What became of one damaged directory. `wrong`: answers that were neither right nor an error."""

    what: str
    wrong: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    @contextmanager
    def noted(self) -> Generator[None]:
        """An error is no wrong answer, where it says what to do."""
        try:
            yield
        except MillstreamError as error:
            self.errors.append(error.message)


def prepare(folder: Path, end: End) -> Prepared:
    older = folder.with_name(f"{folder.name}-older")
    killed = folder.with_name(f"{folder.name}-killed")
    epoch, ends, committed = 0, dict[TopicPartition, int](), dict[TopicPartition, int]()
    written: dict[TopicPartition, Served] = {}
    compacted: dict[TopicPartition, Served] = {where: {} for where in _PLACES}
    for life in range(2):
        log = open_log(folder)
        if life == 0:
            for topic, config in _TOPICS.items():
                log.create_topic(topic, 2, config)
            log.create_topic("deleted", 1)
        else:
            log.delete_topic("deleted")
        epoch = _write(log, life)
        for where in _PLACES:
            compacted[where].update(read_all(log, *where)[0])
        log.keep_house()
        written = {where: read_all(log, *where)[0] for where in _PLACES}
        ends = {where: log.offsets(*where).log_end_offset for where in _PLACES}
        committed = dict(log.committed_offsets(_GROUP))
        if life == 1 and end == "killed":
            shutil.copytree(folder, killed)
        log.close()
        if life == 0:
            shutil.copytree(folder, older)
    return Prepared(killed if end == "killed" else folder, older, written, compacted, ends, committed, epoch)


def _write(log: Log, life: int) -> int:
    """The epoch of the transactional producer afterwards."""
    producer = log.transactional_producer("p")
    for number in range(20):
        for topic in ("plain", "large", "compacted"):
            value = b"%d-%d " % (life, number) * (1 + number % 9)
            log.append(topic, number % 2, rows(value, key=b"k%d" % (number % 7)))
        if number % 4 == 0:
            producer.begin()
            producer.append("plain", 0, rows(b"in transaction %d-%d" % (life, number)))
            producer.append("large", 1, columnar(number, number + 1))
            producer.send_offsets(_GROUP, {TopicPartition("plain", 0): 100 * life + number})
            (producer.abort if number % 8 else producer.commit)()
        if number % 5 == 0:
            log.commit_offsets(_GROUP, {TopicPartition("large", 1): 100 * life + number})
    if life == 0:
        log.append("rests", 0, rows(b"long ago"))
    return producer.epoch


def try_damage(prepared: Prepared, folder: Path, seed: int) -> Trial:
    """One trial. The directory is removed after it, unless something is wrong."""
    shutil.copytree(prepared.folder, folder)
    chance = random.Random(seed)
    trial = Trial(f"seed {seed}: {damage_one(prepared, folder, chance)}")
    added: dict[TopicPartition, Served] = {where: {} for where in _PLACES}
    for _ in range(2):
        with trial.noted(), open_log(folder, sync="never") as log:
            _check(trial, log, prepared, added)
    if not trial.wrong:
        shutil.rmtree(folder)
    return trial


# Damage


def damage_one(prepared: Prepared, folder: Path, chance: random.Random) -> str:
    """Harms one file, or takes a folder away; says what it did."""
    if chance.random() < 0.08:
        folders = sorted(path for path in folder.rglob("*") if path.is_dir())
        path = chance.choice(folders)
        shutil.rmtree(path)
        return f"{path.relative_to(folder)} removed"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
    if chance.random() < 0.3:  # of the few that are of one partition only there are many
        files = [path for path in files if path.parent.name in ("quorum", folder.name, "replicas")]
    path = chance.choice(files)
    kind = damage_file(path, prepared.older / path.relative_to(folder), chance)
    return f"{path.relative_to(folder)} {kind}"


# What the node answers


def _check(trial: Trial, log: Log, prepared: Prepared, added: dict[TopicPartition, Served]) -> None:
    names = {name for name in log.topics() if not name.startswith("__")}
    if names != set(_TOPICS):
        trial.wrong.append(f"the topics are {sorted(names)}")
        return
    for where in _PLACES:
        with trial.noted():
            _check_records(trial, log, where, prepared, added)
    with trial.noted():
        committed = dict(log.committed_offsets(_GROUP))
        if committed != prepared.committed:
            trial.wrong.append(f"{committed} is committed, in place of {dict(prepared.committed)}")
    with trial.noted():
        _check_transactions(trial, log, prepared, added)


def _check_records(
    trial: Trial, log: Log, where: TopicPartition, prepared: Prepared, added: dict[TopicPartition, Served]
) -> None:
    value = b"after %d" % len(added[where])
    offset = log.append(*where, rows(value, key=b"new"))
    if offset < prepared.ends[where] or offset in added[where]:
        trial.wrong.append(f"{where}: offset {offset} is given again")
    added[where][offset] = value
    truth = {**prepared.written[where], **added[where]}
    _wait_until_stable(trial, log, where)
    found, complaints = read_all(log, *where)
    complaints += [problem for problem in log.problems() if f'"{where.topic}"' in problem]
    ever = {**prepared.compacted[where], **truth}
    wrong = {offset: value for offset, value in found.items() if ever.get(offset) != value}
    if wrong:
        trial.wrong.append(f"{where}: {wrong} was never written there, or aborted")
    lost = truth.keys() - found.keys()
    if lost and not complaints:
        trial.wrong.append(f"{where}: {sorted(lost)} are lost without a word")
    trial.errors += complaints[:1]


def _wait_until_stable(trial: Trial, log: Log, where: TopicPartition) -> None:
    deadline = time.monotonic() + _STABLE_S
    while (offsets := log.offsets(*where)).last_stable_offset < offsets.log_end_offset:
        if time.monotonic() > deadline:
            trial.wrong.append(f"{where}: a transaction stays open: {offsets}")
            return
        time.sleep(0.02)


def _check_transactions(trial: Trial, log: Log, prepared: Prepared, added: dict[TopicPartition, Served]) -> None:
    producer = log.transactional_producer("p")
    if producer.epoch <= prepared.epoch and not log.problems():
        trial.wrong.append(f"epoch {producer.epoch} is given again")
    where = TopicPartition("rests", 1)
    before = log.offsets(*where).log_end_offset
    producer.begin()
    producer.append(*where, rows(b"in a transaction"))
    producer.commit()
    added[where][before] = b"in a transaction"
    found, _ = read_all(log, *where)
    if found.get(before) != b"in a transaction":
        trial.wrong.append(f"{where}: what was committed is not there: {found}")


def main(end: Any, first: int, last: int) -> int:
    """Prints what is wrong, and how the trials ended."""
    count: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="millstream-damage-", dir="/dev/shm") as path:
        prepared = prepare(Path(path) / "original", end)
        for seed in range(first, last):
            trial = try_damage(prepared, Path(path) / str(seed), seed)
            count["wrong" if trial.wrong else "error" if trial.errors else "right"] += 1
            for wrong in trial.wrong:
                print(f"{trial.what}: {wrong} (errors: {trial.errors})", flush=True)
    print(f"{end}, seeds {first} to {last - 1}: {dict(count)}")
    return count["wrong"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])) > 0)
