"""What an error that came through Spark means: the query's own fault, or that of the machines it runs on.

| kind | what it is | what the query does |
| --- | --- | --- |
| `over` | another run has begun, records or state are lost | stops: trying again changes nothing |
| `outage` | a lost executor, a worker that does not call back, no answer of master or log | waits, without end |
| `failure` | a task raised anything else | tries again, some times |

An outage is known by what is missing: Spark reports it in Java's words, and no exception of ours is in its text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from ...logcore.errors import LogClosed, NotNow, ProducerFenced
from ...planner.insight.stall import counted
from ..errors import SparkUnavailable
from ..queries.query import SIZE_ERRORS
from ..queries.query_worker import OUTAGES
from ..state.lost_state import LOST, how_to_rebuild, what_to_do
from .markers import StaleRun

Kind = Literal["over", "outage", "failure"]

_OVER = (ProducerFenced, StaleRun, LogClosed, *LOST)
_OUTAGES = (*OUTAGES, NotNow, SparkUnavailable, ConnectionError, TimeoutError, EOFError)
_LOST_NAMES = tuple(kind.__name__ for kind in LOST)
_OVER_NAMES = frozenset({"ProducerFenced", "StaleRun", *_LOST_NAMES})  # a task's log is closed when its driver ends
_OUTAGE_NAMES = frozenset({kind.__name__ for kind in (*_OUTAGES, *ConnectionError.__subclasses__())} | {"LogClosed"})
_ERROR = re.compile(
    r"^((?:\w+\.)*)(\w*(?:Error|Exception|Fenced|Topic|Run|Unavailable|Failed|Full|Lost|NotNow|Closed|CorruptLog)\w*)"
    r": (.+)$",
    re.M,
)
_SIZE_NAMES = frozenset(kind.__name__ for kind in SIZE_ERRORS)
LOST_MIN = 1_000
"""Records. Most executors are lost for other reasons, one after the other where machines are in trouble, and so many
records need little memory: a batch is bounded by its bytes, too."""
_LOST_WORKER = re.compile(r"OutOfMemoryError|ExecutorLostFailure|worker exited unexpectedly|Size exceeds Integer.MAX")
_JVM = ("java.", "javax.", "org.", "scala.", "io.", "py4j.", "pyspark.errors.exceptions.captured.")
_JAVA_ERROR = re.compile(r"^: (.+)$", re.M)


@dataclass(frozen=True, slots=True)
class QueryTrouble:
    """`text`: for people. `smallest`: a batch of no less than so many records may do: memory did not suffice, or an
    executor or a worker was lost, which is how a machine without memory ends them; 0 where size is not the trouble."""

    kind: Kind
    text: str
    smallest: int = 0

    def followed_by(self, records_max: int) -> QueryTrouble:
        """With how it goes on."""
        return replace(self, text=f"{self.text}; the next batch has at most {counted(records_max, 'record')}")


def trouble_of(error: Exception, query_id: str) -> QueryTrouble:
    """Sorts an error of a run."""
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
    """What a person should read of an error that has come through Spark: the last Python error in its text, or the
    Java error it began with."""
    name, text = _python_error(error)
    if name is not None:
        return f"{name}: {text}"
    java = _JAVA_ERROR.search(str(error))
    return java[1].strip() if java is not None else first_line(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _python_error(error: BaseException) -> tuple[str | None, str]:
    """Name and text of the last Python error in the text of one of Spark's."""
    found = [(name, text) for module, name, text in _ERROR.findall(str(error)) if not module.startswith(_JVM)]
    return (found[-1][0], found[-1][1].strip()) if found else (None, "")


def _is_sparks(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")
