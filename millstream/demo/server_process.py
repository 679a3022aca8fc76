"""`millstream server` as a separate process, which can be killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from typing import Final

from millstream.errors import ServerError

_STOP_S: Final = 30.0
_LOG_LINES: Final = 30
_PORT_LINES: Final = ("http:", "kafka:", "executor:")


class ServerDidNotStart(ServerError):
    """The server's process ended before it was ready."""

    code = "SERVER_DID_NOT_START"


class ServerProcess:
    """A server on a data directory. It uses free ports at the first start, and the same ones later.

    `executor_line`: the server's line about its executor. Its log is `server.log` next to the data.
    """

    def __init__(self, folder: Path, executor: str) -> None:
        self._data = folder / "data"
        self._log = folder / "server.log"
        self._executor = executor
        self._process: subprocess.Popen[str] | None = None
        self._http = self._kafka = "127.0.0.1:0"
        self.executor_line = ""

    @property
    def url(self) -> str:
        return f"http://{self._http}"

    @property
    def on_spark(self) -> bool:
        """Whether Spark runs its persistent queries."""
        return self.executor_line.startswith("Spark ")

    @property
    def kafka(self) -> str:
        """HOST:PORT of the log."""
        return self._kafka

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Returns when it answers. Raises `ServerDidNotStart`."""
        command = [sys.executable, "-m", "millstream", "server", "--data", str(self._data), "--http", self._http]
        command += ["--kafka", self._kafka, "--executor", self._executor]
        with self._log.open("a") as log:
            process = self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        found: dict[str, str] = {}
        for line in process.stdout:
            name, _, rest = line.strip().partition(" ")
            found[name] = rest
            if all(name in found for name in _PORT_LINES):
                break
        else:
            process.wait()
            raise ServerDidNotStart("the server did not start")
        threading.Thread(target=deque, args=(process.stdout, 0), daemon=True).start()  # discards further output
        self._http = found["http:"].rpartition("//")[2]
        self._kafka = found["kafka:"].rpartition(" ")[2]
        self.executor_line = found["executor:"]

    def last_log_lines(self) -> str:
        """Its last log lines, over all starts."""
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return "\n".join(lines[-_LOG_LINES:])

    def kill(self) -> None:
        """Like `kill -9`: the process cannot clean up."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stops it as a user would; kills it if that takes too long."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
            return
        self.kill()
