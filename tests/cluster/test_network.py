"""Links that are cut are cut, in the direction that was asked for, and heal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from .network import isolated, why_no_namespaces

REPOSITORY = Path(__file__).resolve().parents[2]

IN_A_NAMESPACE = """
import errno, socket, subprocess, sys
from pathlib import Path
from tests.cluster.disks import SmallDisk
from tests.cluster.network import Network

network = Network(2)
echo = "import socket; s = socket.create_server(('', 7000)); print(flush=True); c, _ = s.accept(); c.sendall(c.recv(9))"
ask = "import socket; c = socket.create_connection(('10.77.2.2', 7000), 1); c.sendall(b'?'); c.recv(9)"
server = subprocess.Popen(network.inside(2, [sys.executable, "-c", echo]), stdout=subprocess.PIPE)
server.stdout.readline()
reached = lambda: subprocess.run(network.inside(1, [sys.executable, "-c", ask]), stderr=subprocess.DEVNULL).returncode
network.cut(2, 1)
assert reached(), "an answer came over a link that is cut"
network.mend(2, 1)
assert reached() == 0, "a link that was mended is still cut"
disk = SmallDisk(Path(sys.argv[1]), 1)
disk.data.mkdir()
disk.fill()
try:
    (disk.data / "file").write_bytes(b"x")
except OSError as error:
    assert error.errno == errno.ENOSPC
else:
    raise AssertionError("a full disk took a byte")
disk.free()
(disk.data / "file").write_bytes(b"x")
"""


def test_links_of_namespaces_are_cut_and_mended_and_disks_run_full(tmp_path: Path) -> None:
    reason = why_no_namespaces()
    if reason is not None:
        pytest.skip(reason)
    command = isolated(["-c", IN_A_NAMESPACE, str(tmp_path / "disk")])
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
