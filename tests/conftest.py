"""What every test can rely on: where the shared material is, which tests need Spark, how long a test may take."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Container, Generator, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import structlog
from costs import measured
from drawn import drawn
from execnet import XSpec
from forked_workers import fork_workers
from hang import ended_if_it_hangs, prepare, time_limit
from hypothesis import settings
from kept_constants import KeptConstants
from of_folder import end_others
from one_tls_context import share_tls_context
from scheduling import OneSpark, runs_spark
from xdist.remote import Producer

REPOSITORY = Path(__file__).resolve().parent.parent
JAVA_MAJOR_MIN = 17  # what PySpark 4.3 needs; the Makefile asks for the same
SLOW_SECONDS = 200  # a file with a test that may take longer is begun before the others
SPARK_TIMEOUT_SECONDS = 300  # a Spark session starts in 4 to 10 s, and its first batch takes as long again

_KEPT = pytest.StashKey[KeptConstants]()

# Examples share the machine with other work, so their duration says nothing. A failure prints how to repeat it.
settings.register_profile("millstream", deadline=None, print_blob=True, max_examples=drawn(50))
settings.load_profile("millstream")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with conformance cases and Nexmark: MILLSTREAM_SHARED, or `shared` beside the repository."""
    named = os.environ.get("MILLSTREAM_SHARED")
    folder = (REPOSITORY / named).resolve() if named else REPOSITORY.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no shared folder at {folder}: set MILLSTREAM_SHARED to the one that contains qtt/ and nexmark/")
    return folder


@pytest.fixture(scope="session")
def case_runner(shared: Path) -> ModuleType:
    """The module that reads and runs ksqlDB's cases."""
    spec = importlib.util.spec_from_file_location("run_cases", shared / "qtt" / "run_cases.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pytest_configure(config: pytest.Config) -> None:
    prepare(config)
    share_tls_context()
    # As the command logs them. Where rich is installed, structlog's own choice shows all variables of all frames, which
    # takes a second of CPU for each error.
    renderer = structlog.get_config()["processors"][-1]
    assert isinstance(renderer, structlog.dev.ConsoleRenderer)
    renderer.exception_formatter = structlog.dev.plain_traceback


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Takes what is collected out of the sight of Python's cyclic garbage collector.

    Twelve thousand tests and their modules are 1.8 million objects, which live as long as the process. Looking through
    them took a second each time, and whatever makes many objects brings that about: computing the grammar's table seven
    times took 52 s of CPU in a run of all tests, 6 s in a run of its file.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # else DuckDB's binding prints that all of it leaked
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """After the last test of a file, when all its fixtures are over, and of a folder."""
    done = yield
    end_others(nextitem and nextitem.path.parent)  # pyrefly: ignore[bad-argument-type]
    if nextitem is None or nextitem.path != item.path:
        structlog.reset_defaults()  # engines in process let it log only warnings; the next file may look for others
        kept = item.config.stash[_KEPT]
        assert (changed := kept.changed()) == [], f"{item.path.name} leaves constants changed: {changed}"
    return done


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_KEPT] = KeptConstants()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with ended_if_it_hangs(item), measured(item.nodeid):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[XSpec]) -> None:
    fork_workers(config, specs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSpark | None:
    return OneSpark(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark"):
            reason = why_no_spark()
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
            _allow(item, SPARK_TIMEOUT_SECONDS)
            _require_name(item)
        if item.get_closest_marker("soak"):
            _allow(item, 0)
    slow = {item.path for item in items if time_limit(item) > SLOW_SECONDS and not item.get_closest_marker("soak")}
    items.sort(key=lambda item: _turn(item, slow))


def _require_name(item: pytest.Item) -> None:
    """The one that hands out files to processes knows nothing but their names."""
    if not runs_spark(item.path.name):
        raise pytest.UsageError(f"{item.path}: {item.name} starts Spark; the name of its file has to say so")


def _turn(item: pytest.Item, slow: Container[Path]) -> int:
    """Files are begun in this order, so that no long one is the last, with nothing beside it: those on Spark, then
    those that say that they need long, then the others."""
    return 0 if runs_spark(item.path.name) else 1 if item.path in slow else 2


def _allow(item: pytest.Item, seconds: int) -> None:
    """Change how long the test may take (0: for ever), unless it says so itself."""
    if item.get_closest_marker("timeout") is None:
        item.add_marker(pytest.mark.timeout(seconds))


@cache
def why_no_spark() -> str | None:
    """The reason why Spark cannot run here, or None where it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "needs pyspark: pip install 'millstream[spark]'"
    java_home = os.environ.get("JAVA_HOME")
    java = str(Path(java_home, "bin", "java")) if java_home else shutil.which("java")
    if java is None or not Path(java).exists():
        return f"needs a Java runtime, {JAVA_MAJOR_MIN} or newer, on PATH or in JAVA_HOME"
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < JAVA_MAJOR_MIN:
        return f"needs Java {JAVA_MAJOR_MIN} or newer, {java} is {version[1] if version else 'not one'}"
    return None
