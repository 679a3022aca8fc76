"""A network of namespaces: each node has an address of its own, and all packets between nodes pass through a router.

The router is the network namespace of this process, which must be a new one (`isolated` starts a program so): then
nothing of it is seen by the rest of the machine. Links are cut by rules of the router that drop packets without a word.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

_NAMES: Final = Path("/run/netns")
_MARK: Final = "MILLSTREAM_TEST_NAMESPACE"


@cache
def why_no_namespaces() -> str | None:
    """The reason why this machine does not allow it, or None where it does."""
    try:
        probe = [*_unshare(), "sh", "-c", "ip link add probe type veth peer name eborp && mount -t tmpfs none /mnt"]
        done = subprocess.run(probe, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"network namespaces need unshare and ip: {error}"
    said = (done.stderr or "it was refused").strip().splitlines()[:1]
    return None if done.returncode == 0 else f"network namespaces are not allowed here: {said}"


def isolated(arguments: Sequence[str]) -> list[str]:
    """The command that runs this Python with these arguments where `Network` works: with networks and mounts anew."""
    return [*_unshare(), "env", f"{_MARK}=1", sys.executable, *arguments]


def is_isolated() -> bool:
    return os.environ.get(_MARK) == "1"


def _unshare() -> list[str]:
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    return ["unshare", *as_root, "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


class Network:
    """Nodes 1 to `nodes`. State: which directions are cut."""

    def __init__(self, nodes: int) -> None:
        assert is_isolated(), "the caller runs in namespaces of its own"
        self._cut: set[tuple[int, int]] = set()
        self._nodes = range(1, nodes + 1)
        _NAMES.mkdir(exist_ok=True)
        run("mount", "-t", "tmpfs", "none", str(_NAMES))
        run("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for node in self._nodes:
            self._add(node)

    def address(self, node: int) -> str:
        return f"10.77.{node}.2"

    def inside(self, node: int, command: Sequence[str]) -> list[str]:
        """This command, run on the node."""
        return ["nsenter", f"--net={_NAMES / _name(node)}", *command]

    def cut(self, source: int, target: int) -> None:
        """Packets from one node to the other get lost; those the other way do not."""
        if (source, target) not in self._cut:
            self._cut.add((source, target))
            run("ip", "rule", "add", *self._between(source, target))

    def mend(self, source: int, target: int) -> None:
        if (source, target) in self._cut:
            self._cut.remove((source, target))
            run("ip", "rule", "del", *self._between(source, target))

    def _between(self, source: int, target: int) -> list[str]:
        return ["from", self.address(source), "to", self.address(target), "blackhole"]

    def _add(self, node: int) -> None:
        name, wire = _name(node), f"wire{node}"
        run("ip", "netns", "add", name)
        run("ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "addr", "add", f"10.77.{node}.1/24", "dev", wire)
        run("ip", "link", "set", wire, "up")
        run("ip", "-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "route", "add", "default", "via", f"10.77.{node}.1")


def run(*command: str) -> None:
    """Raises CalledProcessError with what was said."""
    subprocess.run(command, check=True, capture_output=True, text=True)


def _name(node: int) -> str:
    return f"node{node}"
