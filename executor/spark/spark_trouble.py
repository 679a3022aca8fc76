"""Classifies an error that came through Spark: did the query cause it, or the machines it runs on?

| kind | cause | what the query does |
| --- | --- | --- |
| `over` | another run has begun; records or state are lost; a record ends the query | stops: a retry cannot help |
| `outage` | a lost executor, a worker that does not call back, no answer from the master or the log | retries forever |
| `failure` | a task raised any other error | retries a limited number of times |

An error of Spark itself is an outage. Its text has only Java errors and no Python exception of ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from ...logcore.errors import LogClosed, NotNow, ProducerFenced
from ...planner.insight.stall import counted
from ..errors import SparkUnavailable, TimestampFailed
from ..queries.query import SIZE_ERRORS
from ..queries.query_worker import OUTAGES
from ..state.lost_state import LOST, how_to_rebuild, what_to_do
from .markers import StaleRun

Kind = Literal["over", "outage", "failure"]

_OVER = (ProducerFenced, StaleRun, LogClosed, TimestampFailed, *LOST)
_OUTAGES = (*OUTAGES, NotNow, SparkUnavailable, ConnectionError, TimeoutError, EOFError)
_LOST_NAMES = tuple(kind.__name__ for kind in LOST)
# Without "LogClosed": a task's log is closed when its driver ends.
_OVER_NAMES = frozenset({"ProducerFenced", "StaleRun", "TimestampFailed", *_LOST_NAMES})
_OUTAGE_NAMES = frozenset({kind.__name__ for kind in (*_OUTAGES, *ConnectionError.__subclasses__())} | {"LogClosed"})
_ERROR = re.compile(
    r"^((?:\w+\.)*)(\w*(?:Error|Exception|Fenced|Topic|Run|Unavailable|Failed|Full|Lost|NotNow|Closed|CorruptLog)\w*)"
    r": (.+)$",
    re.M,
)
_SIZE_NAMES = frozenset(kind.__name__ for kind in SIZE_ERRORS)
LOST_MIN = 1_000
"""The smallest batch, in records, that is tried after a lost executor. Most executors are lost for other reasons than
memory, and machines in trouble lose one after the other. This many records need little memory, because the bytes of a
batch are limited as well."""
_LOST_WORKER = re.compile(r"OutOfMemoryError|ExecutorLostFailure|worker exited unexpectedly|Size exceeds Integer.MAX")
_JVM = ("java.", "javax.", "org.", "scala.", "io.", "py4j.", "pyspark.errors.exceptions.captured.")
_JAVA_ERROR = re.compile(r"^: (.+)$", re.M)


@dataclass(frozen=True, slots=True)
class QueryTrouble:
    """`text`: the message for users. `smallest`: a smaller batch of at least this many records may succeed, because
    memory was too small, or an executor or a worker was lost (a machine that is out of memory kills them). 0: the size
    of the batch is not the problem."""

    kind: Kind
    text: str
    smallest: int = 0

    def followed_by(self, records_max: int) -> QueryTrouble:
        """Adds to the text how the query continues."""
        return replace(self, text=f"{self.text}; the next batch has at most {counted(records_max, 'record')}")


def trouble_of(error: Exception, query_id: str) -> QueryTrouble:
    """Classifies an error of a run."""
    if isinstance(error, _OVER):
        return QueryTrouble("over", what_to_do(error))
    if isinstance(error, _OUTAGES):
        return QueryTrouble("outage", what_to_do(error), int(isinstance(error, SIZE_ERRORS)))
    text, name = cause_of(error), _python_error(error)[0]
    if name in _OVER_NAMES:
        return QueryTrouble("over", f"{text}. {how_to_rebuild(query_id)}" if name in _LOST_NAMES else text)
    no_memory = name is not None and name.endswith("MemoryError")  # numpy and pyarrow have their own
    is_outage = name in _OUTAGE_NAMES or no_memory or (name is None and _is_sparks(error))
    smallest = int(name in _SIZE_NAMES or no_memory)
    if name is None and _LOST_WORKER.search(str(error)):
        smallest = LOST_MIN
    return QueryTrouble("outage" if is_outage else "failure", text, smallest)


def cause_of(error: BaseException) -> str:
    """The part of an error from Spark that a user should read: the last Python error in its text, or the Java error
    with which it began."""
    name, text = _python_error(error)
    if name is not None:
        return f"{name}: {text}"
    java = _JAVA_ERROR.search(str(error))
    return java[1].strip() if java is not None else first_line(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _python_error(error: BaseException) -> tuple[str | None, str]:
    """Name and text of the last Python error in the text of an error from Spark."""
    found = [(name, text) for module, name, text in _ERROR.findall(str(error)) if not module.startswith(_JVM)]
    return (found[-1][0], found[-1][1].strip()) if found else (None, "")


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")
