"""The Spark session: one per process, opened when the first query needs it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...sql.settings.property_table import SPARK_LOG_LEVEL, SPARK_MASTER
from ..errors import SparkUnavailable
from ..formats.compiled.warm_up import warm_up
from ..state.temporary_folders import TemporaryFolder
from . import unpacking
from .spark_settings import SparkSettings
from .spark_trouble import first_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_USE_DUCKDB = "Or run the query on DuckDB, which needs neither: SET 'millstream.executor'='duckdb';"
_guard = threading.Lock()
_sessions: dict[str, SparkSession] = {}
_own: list[Any] = []
"""The Spark context, if this module has created it."""

EXIT_S = 1.0  # how long Spark may take to end when the driver's process exits


def require_spark() -> None:
    """Raises `SparkUnavailable` if PySpark or Java is missing."""
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


def spark_session(settings: SparkSettings) -> SparkSession:
    """The process's session. If the process has no Spark context yet, Spark's own settings configure a new one.
    Otherwise the session uses the existing context, with our session settings. Raises `SparkUnavailable`."""
    with _guard:
        if "session" not in _sessions or _is_stopped(_sessions["session"].sparkContext):
            require_spark()
            _forget_dead_driver()
            _sessions["session"] = _open_session(settings)
        return _sessions["session"]


def end_session() -> None:
    """Ends Spark, which returns its executors to the cluster. The next query that needs Spark gets a new session. A
    Spark context that the process had before is left alone."""
    with _guard:
        session = _sessions.pop("session", None)
    if session is not None and session.sparkContext in _own:
        session.stop()


def _open_session(settings: SparkSettings) -> SparkSession:
    master = _with_retries(settings.master)
    local = settings.is_local
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    pyspark_sql = importlib.import_module("pyspark.sql")
    own = {name: value for name, value in settings.own.items() if name != SPARK_LOG_LEVEL.name}
    builder = pyspark_sql.SparkSession.builder.appName("millstream").master(master)
    for name, value in {**_defaults(local), **own, **_FORCED, SPARK_MASTER.name: master}.items():
        builder = builder.config(name, value)
    compiling = threading.Thread(target=warm_up, name="millstream-warm-up", daemon=True)
    compiling.start()  # once here, instead of in each of Spark's processes at the same time
    before = importlib.import_module("pyspark").SparkContext._active_spark_context
    try:
        session: SparkSession = builder.getOrCreate().newSession()
    except Exception as error:
        raise SparkUnavailable(
            f"Spark does not start with master {master}: {first_line(error)}",
            hint=f"Check the properties that begin with spark. {_USE_DUCKDB}",
        ) from error
    compiling.join()
    if session.sparkContext is not before:
        _own[:] = [session.sparkContext]
    end_at_exit(session.stop, functools.partial(_kill_driver, session))
    session.sparkContext.setLogLevel(settings.log_level)
    for name, value in _SESSION_SETTINGS.items():
        session.conf.set(name, value)
    if not local:
        session.sparkContext.addPyFile(str(package_archive()))
    return session


def end_at_exit(stop: Callable[[], object], kill: Callable[[], object]) -> Callable[[], None]:
    """Registers a function that ends Spark at exit, and returns it. It calls `stop`, and `kill` if `stop` takes longer
    than EXIT_S.

    The thread that calls `stop` starts now, because a process that exits cannot start threads.
    """
    asked, stopped = threading.Event(), threading.Event()

    def wait() -> None:
        asked.wait()
        with contextlib.suppress(Exception):  # Spark has already ended
            stop()
        stopped.set()

    def end() -> None:
        asked.set()
        if not stopped.wait(EXIT_S):
            kill()

    threading.Thread(target=wait, name="spark-exit", daemon=True).start()
    atexit.register(end)
    return end


def _kill_driver(session: SparkSession) -> None:
    """Kills the JVM, if this process has started it."""
    context: Any = session.sparkContext
    driver = getattr(context._gateway, "proc", None)
    if driver is not None:
        driver.kill()


def _with_retries(master: str) -> str:
    """The master with a number of retries: in local mode Spark retries a failed task only if the master says how
    often."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return master if found is None else f"local[{found[1] or 1},4]"


def _defaults(local: bool) -> dict[str, str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.scheduler.mode": "FAIR",  # between our queries and other users of the session
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


# The JVM moves few but large rows, so optimizing its code costs more than it gains: 25 s of CPU time before the first
# batch is done, compared with 12 s.
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

_FORCED = {"spark.speculation": "false"}  # two simultaneous attempts of a bucket would fence each other forever

_SESSION_SETTINGS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",  # otherwise Spark would choose the number of partitions
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 1024 * 1024),  # a row may be as large as 16 MB
}


def _is_stopped(context: Any) -> bool:
    """Whether the context is stopped. True also if the driver's process does not answer, because it has ended or its
    start was interrupted."""
    try:
        return context._jsc is None or context._jsc.sc().isStopped()
    except Exception:
        return True


def _forget_dead_driver() -> None:
    """Makes PySpark forget a driver that has died. Otherwise a new session would use the dead driver."""
    pyspark: Any = importlib.import_module("pyspark")
    context, sessions = pyspark.SparkContext, importlib.import_module("pyspark.sql").SparkSession
    dead = context._active_spark_context
    if dead is None or not _is_stopped(dead):
        return
    with contextlib.suppress(Exception):
        dead.stop()
    context._active_spark_context = sessions._instantiatedSession = None
    process = getattr(context._gateway, "proc", None)
    if process is not None and process.poll() is not None:  # the JVM has ended: the next session starts another
        context._gateway = context._jvm = None


_PACKAGES = ("sql", "planner", "executor", "logcore")
_TRAVELS = (".py", ".lark", ".typed")
_STAND_IN = "from millstream_unpacking import enter\n\nenter(__loader__.archive)\n"
_MADE = (2000, 1, 1, 0, 0, 0)  # the time of all files: equal packages give equal archives, so one is unpacked once


@functools.cache
def package_archive() -> Path:
    """The path of the package's archive, which exists until the process ends."""
    folder = TemporaryFolder("package")
    atexit.register(folder.remove)
    path = folder.path / "millstream.zip"
    write_archive(path)
    return path


def write_archive(path: Path) -> None:
    """Writes this package for the hosts of a cluster, so that they run the server's version of it, whichever version
    they have installed. Its dependencies must be installed on the hosts."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, "millstream_unpacking.py", Path(unpacking.__file__).read_bytes())
        _add(archive, "millstream/__init__.py", _STAND_IN.encode())
        for name, file in sorted(_files().items()):
            _add(archive, f"{unpacking.INSIDE}/{name}", file.read_bytes())


def _files() -> dict[str, Path]:
    """The files to archive, by their path below the folder from which Python imports."""
    found: dict[str, Path] = {}
    for name in ("millstream", *(f"millstream.{package}" for package in _PACKAGES)):
        for folder in map(Path, importlib.import_module(name).__path__):
            for file in folder.rglob("*"):
                if file.suffix in _TRAVELS:
                    found.setdefault(str(Path(*name.split("."), file.relative_to(folder))), file)
    return found


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, _MADE), data, zipfile.ZIP_DEFLATED)
