"""The Spark session: one per process, made when the first query needs it."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formats.compiled.warm_up import warm_up
from ..state.temporary_folders import TemporaryFolder
from .spark_errors import SparkUnavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "spark.master"
DEFAULT_MASTER = "local[*,4]"  # every core; a task that fails is tried again

_USE_DUCKDB = "Or run the query on DuckDB, which needs neither: SET 'millstream.executor'='duckdb';"
_guard = threading.Lock()
_sessions: dict[str, SparkSession] = {}
_metrics: dict[str, Callable[[Mapping[str, int]], None]] = {}  # by the id of the streaming query's run


def require_spark() -> None:
    """Raises `SparkUnavailable` where PySpark or Java is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkUnavailable(
            "the Spark executor needs PySpark, which is not installed",
            hint=f"Install it with: pip install 'millstream[spark]'. {_USE_DUCKDB}",
        )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise SparkUnavailable(
            "the Spark executor needs a Java runtime, and there is none on PATH or in JAVA_HOME",
            hint=f"Install Java 17 or newer. {_USE_DUCKDB}",
        )


def spark_session(properties: Mapping[str, str]) -> SparkSession:
    """The process's session. Properties that begin with `spark.` configure it, if it is not there yet; a session that
    the process has already is used, under settings of our own. Raises `SparkUnavailable`."""
    with _guard:
        if "session" not in _sessions or _is_stopped(_sessions["session"]):
            require_spark()
            _sessions["session"] = _open_session(properties)
        return _sessions["session"]


def make_active(session: SparkSession) -> None:
    """Makes the session this thread's: Spark looks the format of a write up in the session that is active."""
    hidden: Any = session
    hidden._get_j_spark_session_class(hidden._jvm).setActiveSession(hidden._jsparkSession)


def on_progress(run_id: str, callback: Callable[[Mapping[str, int]], None]) -> None:
    """Calls back with the counts of each batch of the streaming query with this run id, until it has ended."""
    _metrics[run_id] = callback


def _open_session(properties: Mapping[str, str]) -> SparkSession:
    master = _with_retries(properties.get(MASTER, DEFAULT_MASTER))
    local = master.startswith("local")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    pyspark_sql = importlib.import_module("pyspark.sql")
    builder = pyspark_sql.SparkSession.builder.appName("millstream").master(master)
    for name, value in {**_defaults(local), **_given(properties), MASTER: master}.items():
        builder = builder.config(name, value)
    compiling = threading.Thread(target=warm_up, name="millstream-warm-up", daemon=True)
    compiling.start()  # once here, and not in each of Spark's processes at the same time
    try:
        session: SparkSession = builder.getOrCreate().newSession()
    except Exception as error:
        raise SparkUnavailable(
            f"Spark does not start with master {master}: {first_line(error)}",
            hint=f"Check the properties that begin with spark. {_USE_DUCKDB}",
        ) from error
    compiling.join()
    atexit.register(session.stop)
    make_active(session)
    session.sparkContext.setLogLevel(properties.get("spark.log.level", "ERROR"))
    for name, value in _SESSION_SETTINGS.items():
        session.conf.set(name, value)
    if not local:
        session.sparkContext.addPyFile(str(_package_archive()))
    sources: Any = importlib.import_module("millstream.executor.spark.data_source")
    topics: Any = importlib.import_module("millstream.executor.spark.topic_source")
    for source in (sources.ChangesSource, sources.ProgressSink, topics.TopicSource):
        session.dataSource.register(source)
    listener: Any = importlib.import_module("millstream.executor.spark.progress")
    session.streams.addListener(listener.ProgressListener(_metrics))
    return session


def _with_retries(master: str) -> str:
    """In one process Spark does not run a failed task again unless the master says how often."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return master if found is None else f"local[{found[1] or 1},4]"


def _defaults(local: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir(), "millstream-spark-warehouse")),
        "spark.executorEnv.PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"],
    }
    if local:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.python.daemon.module": "millstream.executor.spark.daemon",
            "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        }
    return settings


# The JVM moves few rows, each of them large: compiling its code well costs more than it gains (25 s of CPU time before
# the first batch is done, against 12).
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_SESSION_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",  # else the number of partitions is not ours
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),  # a row may be as large as 16 MB
    # Of the two for local files, the one that does not start a process to look at each file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",  # a run's checkpoint ends with the run
    "spark.sql.streaming.numRecentProgressUpdates": "4",
}


def _given(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value for name, value in properties.items() if name.startswith("spark.") and name != "spark.log.level"
    }


def _is_stopped(session: SparkSession) -> bool:
    context: Any = session.sparkContext
    return context._jsc is None or context._jsc.sc().isStopped()


def first_line(error: BaseException) -> str:
    """The first line of an error's text."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _package_archive() -> Path:
    """This package as a zip, for hosts on which it is not installed. Its dependencies have to be there."""
    face = importlib.import_module("millstream")
    folder = TemporaryFolder("package")
    atexit.register(folder.remove)
    path = folder.path / "millstream.zip"
    with zipfile.ZipFile(path, "w") as archive:
        _add_package(archive, Path("millstream"), [Path(folder) for folder in face.__path__])
        for name in ("sql", "planner", "executor", "logcore"):
            package = importlib.import_module(f"millstream.{name}")
            _add_package(archive, Path("millstream", name), [Path(folder) for folder in package.__path__])
    return path


def _add_package(archive: zipfile.ZipFile, name: Path, folders: list[Path]) -> None:
    known = set(archive.namelist())
    for folder in folders:
        for file in sorted(folder.rglob("*")):
            target = str(name / file.relative_to(folder))
            if file.suffix in (".py", ".lark", ".typed") and target not in known:
                archive.write(file, target)
                known.add(target)
