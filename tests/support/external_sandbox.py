"""A Sandbox whose log is brokers that run already: Apache Kafka's, or the Kafka port of a Millstream.

MILLSTREAM_BROKERS=HOST:PORT run_cases.py --impl external_sandbox:ExternalSandbox --path tests/support --jobs 1

Topics of users have the same names in each sandbox, so one sandbox at a time uses the brokers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any, Final

from running_server import eventually

from millstream.logcore.external.external_log import ExternalLog, ExternalLogSettings
from millstream.testing import Sandbox

BROKERS: Final = "MILLSTREAM_BROKERS"
_numbers = itertools.count()


class ExternalSandbox(Sandbox):
    """See `Sandbox`. `close` deletes every topic that it finds on the brokers."""

    def __init__(self, executor: str = "duckdb", properties: Mapping[str, Any] | None = None) -> None:
        settings = ExternalLogSettings.of(
            {"bootstrap.servers": os.environ[BROKERS]}, f"case{os.getpid()}x{next(_numbers)}"
        )
        self._brokers = ExternalLog(settings)
        super().__init__(executor, properties, log=self._brokers)

    def close(self) -> None:
        super().close()
        for name in self._topics():
            self._brokers.delete_topic(name)
        eventually(lambda: not self._topics())
        self._brokers.close()

    def _topics(self) -> list[str]:
        """All but those of the brokers themselves."""
        return [name for name in self._brokers.topics() if not name.startswith("__")]
