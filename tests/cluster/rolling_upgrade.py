"""Three nodes of the last release become nodes of this one, one by one, while a query and its clients go on."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any, Final

import httpx
from confluent_kafka import Producer

from bench.clusters import Command
from scripts.import_tree import REPOSITORY, make_import_tree

from .engine_run import EngineRun

LAST_RELEASE: Final = "62a0d06e2778"
"""The commit that stands for it: the last one whose nodes say nothing of versions."""

_READY_S: Final = 180.0
_LONE_S: Final = 4.0  # enough for a node to be let in, where it is


class NoEarlierRelease(Exception):
    """Its commit is not in this clone."""


def check_out(commit: str, folder: Path) -> Path:
    """The tree that Python imports the release from. Raises `NoEarlierRelease`."""
    source = folder / "source"
    source.mkdir(parents=True)
    packed = subprocess.run(["git", "-C", str(REPOSITORY), "archive", commit], capture_output=True, check=False)
    if packed.returncode:
        raise NoEarlierRelease(packed.stderr.decode().strip())
    subprocess.run(["tar", "-x", "-C", str(source)], input=packed.stdout, check=True)
    return make_import_tree(folder / "tree", source)


class RollingUpgrade(EngineRun):
    """State: which release each node runs, as a link that its process is started from.

    In: `says_versions`: whether nodes of the earlier release tell the cluster's version. Then it is this release's, and
    a node may go back.
    """

    def __init__(self, folder: Path, earlier: Path, *, seed: int, says_versions: bool = False) -> None:
        self._earlier = earlier
        self._says_versions = says_versions
        self._now = make_import_tree(folder / "now")
        self._releases = folder / "releases"
        self._releases.mkdir()
        super().__init__(folder, seed=seed, kills=0, wrap=self._started_from_its_release)
        for node in self._cluster.nodes:
            self._install(node, earlier)

    def _started_from_its_release(self, node: int, command: Command) -> Command:
        """In a folder without a package of ours, which Python would take first."""
        return ["env", "-C", str(self._releases), f"PYTHONPATH={self._releases / str(node)}", *command]

    def _install(self, node: int, release: Path) -> None:
        link = self._releases / f"{node}.new"
        link.symlink_to(release)
        link.replace(self._releases / str(node))

    def _suffer(self, producer: Producer) -> int:
        self._until_all_answer(producer)
        says_versions = "version" in self._ask("/cluster")
        self._expect(says_versions == self._says_versions, "this release answers, and not the earlier one")
        self._send_for(producer, 2.0)
        return self._there_and_back(producer) if says_versions else self._raised(producer)

    def _there_and_back(self, producer: Producer) -> int:
        before = self._version()
        moves = sum(self._restarted(producer, node, self._now) for node in self._cluster.nodes)
        self._expect(self._version() == before, "the version has changed though nobody has asked for it")
        self._expect(self._ask("/cluster/upgrade", {}) == {"version": before}, "the version is not this release's")
        last = self._cluster.nodes[-1]
        moves += self._restarted(producer, last, self._earlier)
        return moves + self._restarted(producer, last, self._now)

    def _raised(self, producer: Producer) -> int:
        moves = sum(self._restarted(producer, node, self._now) for node in self._cluster.nodes)
        self._expect(self._version() == 1, "the version is raised though nobody has asked for it")
        self._expect(self._ask("/cluster/upgrade", {}) == {"version": 2}, "the version is not raised")
        self._send_for(producer, 1.0)
        self._expect(self._version() == 2, "the version is not used")
        last = self._cluster.nodes[-1]
        self._put_in_place(last, self._earlier)
        self._send_for(producer, _LONE_S)
        self._expect(not self._answers(last), "a node of the earlier release is let in")
        moves += self._restarted(producer, last, self._now)
        return moves

    def _restarted(self, producer: Producer, node: int, release: Path) -> int:
        """1 where the engine had to move."""
        ran_engine = self._runs_engine(node)
        self._put_in_place(node, release)
        self._until_all_answer(producer)
        self._send_for(producer, 1.0)
        return ran_engine

    def _put_in_place(self, node: int, release: Path) -> None:
        self._cluster.end(node)
        self._install(node, release)
        self._cluster.start(node)

    def _until_all_answer(self, producer: Producer) -> None:
        until = time.monotonic() + _READY_S
        while not all(map(self._answers, self._cluster.nodes)):
            assert time.monotonic() < until, {node: self._cluster.said(node) for node in self._cluster.nodes}
            self._send_for(producer, 0.3)

    # Statements

    def _version(self) -> int:
        return int(self._ask("/cluster").get("version", 1))

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """At any node. A client repeats what is answered 503, and nothing else is right."""
        until = time.monotonic() + _READY_S
        while True:
            for node in self._cluster.nodes:
                url = self._url(node, path)
                try:
                    answer = httpx.get(url, timeout=30) if body is None else httpx.post(url, json=body, timeout=30)
                except httpx.HTTPError:
                    continue
                if answer.status_code != 503:
                    assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
                    return dict(answer.json())
            assert time.monotonic() < until, f"no node answers {path}"
            time.sleep(0.2)

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self._refused.append(otherwise)
