"""A real OpenSearch, of its jars on Maven Central: a single node, on a free port, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Final

import httpx
from java_compiler import compile_java

from bench.apache_kafka import free_ports
from bench.maven import Unavailable, jars

VERSION: Final = "2.19.6"
COORDINATES: Final = (
    f"org.opensearch:opensearch:{VERSION}",
    f"org.opensearch.plugin:transport-netty4-client:{VERSION}",
    "org.apache.logging.log4j:log4j-core:2.25.4",
)
_SOURCE: Final = Path(__file__).with_name("OpenSearchServer.java")
_OPTIONS: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_START_S: Final = 150.0


class OpenSearchServer:
    """State: the process."""

    def __init__(self, folder: Path) -> None:
        """Raises `Unavailable`."""
        if shutil.which("javac") is None:
            raise Unavailable("needs javac on PATH")
        self._folder = folder
        self._libraries = os.pathsep.join(map(str, jars(*COORDINATES)))
        (self._port,) = free_ports(1)
        self._output = (folder / "output.txt").open("a")
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "config").mkdir()
        compile_java(_SOURCE, self._libraries, folder / "classes")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Once it answers."""
        classes = f"{self._folder / 'classes'}{os.pathsep}{self._libraries}"
        command = ["java", *_OPTIONS, "-cp", classes, "OpenSearchServer", str(self._folder), str(self._port)]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=self._output)
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/_cluster/health?wait_for_status=yellow", timeout=10).status_code == 200:
                    return
            time.sleep(0.2)
        raise AssertionError(f"OpenSearch does not start: {(self._folder / 'output.txt').read_text()[-3000:]}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def documents(self, index: str) -> dict[str, object]:
        """By id."""
        httpx.post(f"{self.url}/{index}/_refresh", timeout=60).raise_for_status()
        found = httpx.get(f"{self.url}/{index}/_search?size=10000", timeout=60).raise_for_status().json()
        return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]}


@contextlib.contextmanager
def opensearch_server() -> Generator[OpenSearchServer]:
    with tempfile.TemporaryDirectory(prefix="opensearch-") as folder:
        server = OpenSearchServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()
