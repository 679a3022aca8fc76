"""The clients of a run, each in a process of its own: `python -m tests.cluster.clients KIND …`. They note all they do.

They use Confluent's library, work until they are told to end (SIGTERM), and go on after every error: with the same
producer or consumer where the library says that this is possible, else with a new one.
"""

from __future__ import annotations

import argparse
import random
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .copier import copy_in_transactions
from .group_member import read_in_group
from .producers import send_idempotently, send_in_transactions
from .recording import Work

KINDS: Final[Mapping[str, Callable[[Work], None]]] = {
    "producer": send_idempotently,
    "transactions": send_in_transactions,
    "member": read_in_group,
    "copier": copy_in_transactions,
}


@dataclass(frozen=True, slots=True)
class ClientSpec:
    """`name` stays over its lives (it is the transactional id, too); `group` is empty for clients without one."""

    kind: str
    name: str
    group: str = ""
    protocol: str = "classic"

    def command(self, life: int, brokers: str, folder: Path) -> list[str]:
        """What follows the name of the Python program."""
        return [
            "-m", "tests.cluster.clients", self.kind, "--name", self.name, "--life", str(life), "--brokers", brokers,
            "--folder", str(folder), "--group", self.group, "--protocol", self.protocol,
        ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.clients")
    parser.add_argument("kind", choices=sorted(KINDS))
    for name in ("--name", "--brokers"):
        parser.add_argument(name, required=True)
    parser.add_argument("--life", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--group", default="")
    parser.add_argument("--protocol", default="classic", choices=("classic", "consumer"))
    given: Any = parser.parse_args()
    draw = random.Random(f"{given.name} {given.life}")
    work = Work(given.name, given.life, given.brokers, given.folder, given.group, given.protocol, draw)
    signal.signal(signal.SIGTERM, lambda *_: work.ending.set())
    KINDS[given.kind](work)


if __name__ == "__main__":
    main()
