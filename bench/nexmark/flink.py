"""Nexmark beside Flink SQL: both read the same two partitions of NDJSON, a query at a time, in turn on one machine.

A rate is the slope between two sizes, so that starting a job is in neither. Flink (the package `apache-flink`, in an
environment of its own that is kept in the user's cache) reads files, keeps its state on the heap and takes no
checkpoints. It runs twice: its results are thrown away, or written as JSON to files without a sync. Millstream reads
topics, and commits its results, as JSON, and its state with fsync.
"""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from ..maven import Unavailable, cache_folder
from ..measuring import Measured
from ..report import Line, rate_line
from .events import Events, generate, generator_path
from .market import Market, market
from .measure import NexmarkOptions, drain
from .queries import NexmarkQuery, nexmark_queries

VERSION: Final = "2.3.0"
EMISSIONS: Final = {
    "every change": "SET 'ksql.streams.cache.max.bytes.buffering'='0';",
    "last changes": "UNSET 'ksql.streams.cache.max.bytes.buffering';",
}
"""Flink emits every change unless it is told to wait; what we emit by default is a key's last change per batch.
Aggregates over its window functions are emitted as their windows close, and so is ours then in a third line."""
TIMES: Final = 5  # the larger size has so many times as many events as the smaller one
_WRITING: Final = Path(__file__).with_name("flink_writing.py")
_PARTITIONS: Final = 2
_WARM_EVENTS: Final = 5_000
_INSTALL_S: Final = 1_200


def flink_lines(options: NexmarkOptions, folder: Path) -> list[Line]:
    """Lines for each query that Flink has: Flink's rate, and ours by when results are given."""
    script = generator_path().parent.parent / "peers" / "run_flink.py"
    if not script.is_file():
        return [Line(f"Flink: not measured, there is no {script}")]
    try:
        flink = FlinkPeer(flink_python(), script, folder)
    except Unavailable as error:
        return [Line(f"Flink: not measured, {error}")]
    _say(f"generating {options.events:,} events")
    warm, small, large = (
        generate(folder / name, events, seed=options.seed, partitions=_PARTITIONS)
        for name, events in (("warm", _WARM_EVENTS), ("small", options.events // TIMES), ("large", options.events))
    )
    queries = [query for query in nexmark_queries() if not options.names or query.name in options.names]
    lines: list[Line] = []
    with (
        market(folder / "engine-warm", warm, "JSON") as warmed,
        market(folder / "engine-small", small, "JSON") as few,
        market(folder / "engine-large", large, "JSON") as many,
    ):
        ours = _Ours(warmed, few, many, options.seconds)
        for query in queries:
            lines += _lines(query, flink, (small, large), ours)
    return lines


def _lines(query: NexmarkQuery, flink: FlinkPeer, sizes: tuple[Events, Events], ours: _Ours) -> list[Line]:
    theirs: dict[str, Measured] = {}
    lines: list[Line] = []
    for base, writes in (("Flink", False), ("Flink that writes JSON", True)):
        rate = flink.rate(query, *sizes, writes=writes)
        if isinstance(rate, str):
            lines.append(Line(f"{query.name} {base}: {rate}"))
            continue
        theirs[base] = rate
        lines.append(rate_line(f"{query.name} {base}", rate))
    if not theirs:
        return lines
    forms = {
        emission: replace(query, statements=f"{setting}\n{query.statements}") for emission, setting in EMISSIONS.items()
    }
    if query.as_windows_close is not None:
        forms["as windows close"] = query.as_windows_close
    for emission, form in forms.items():
        _say(f"{query.name}, {emission}")
        rate = ours.rate(form)
        what = f"{query.name} {emission}: {query.title.partition(':')[0].rstrip('.')}"
        if isinstance(rate, str):
            lines.append(Line(what, ratio=rate))
            continue
        beside = [rate_line(what, rate, of=of, base=base) for base, of in theirs.items()]
        lines.append(replace(beside[0], ratio=", ".join(line.ratio for line in beside)))
    return lines


@dataclass(frozen=True, slots=True)
class _Ours:
    """Three engines with the same streams: in the first one a query's code is made and loaded."""

    warm: Market
    small: Market
    large: Market
    seconds: float

    def rate(self, query: NexmarkQuery) -> Measured | str:
        runs: list[Measured] = []
        for opened in (self.warm, self.small, self.large):
            run = drain(opened, query, _rows(query, opened.events), self.seconds)
            if isinstance(run, str):
                return run
            runs.append(run)
        _, small, large = runs
        cpu_s = None if large.cpu_s is None or small.cpu_s is None else large.cpu_s - small.cpu_s
        return Measured(large.rows - small.rows, large.wall_s - small.wall_s, cpu_s)


class FlinkPeer:
    """Runs the shared folder's script, which starts a cluster of one worker with two slots."""

    def __init__(self, python: Path, script: Path, folder: Path) -> None:
        self._python, self._script, self._folder = python, script, folder
        self._queries = runpy.run_path(str(script.parent / "queries_flink.py"))["QUERIES"]

    def rate(self, query: NexmarkQuery, small: Events, large: Events, *, writes: bool) -> Measured | str:
        """Of the rows that the large size has more; or why there is none. In: `writes`: its results are written."""
        if query.name not in self._queries:
            return "there is no such query for Flink"
        _say(f"{query.name}, Flink{' writes' if writes else ''}")
        found = self._folder / "flink.json"
        found.unlink(missing_ok=True)
        writing = [_WRITING, self._script, self._folder / "flink-results"]
        command = [
            str(self._python), *map(str, writing if writes else [self._script]),
            "--queries", query.name, "--repeats", "1", "--json", str(found),
            "--small", str(small.folder / "ndjson"), "--large", str(large.folder / "ndjson"),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self._script.parent)
        if not found.is_file():
            return f"Flink failed: {(ended.stderr.strip().splitlines() or ['it says nothing'])[-1]}"
        return _of_run(json.loads(found.read_text())["runs"][query.name], _rows(query, large) - _rows(query, small))


def _of_run(run: Mapping[str, Any], rows: int) -> Measured | str:
    if "error" in run:
        return f"Flink failed: {run['error'].splitlines()[0]}"
    (rate,), (cpu_rate,) = run["rates"], run["cpu_rates"]
    return Measured(rows, rows / rate, rows / cpu_rate)


def _rows(query: NexmarkQuery, events: Events) -> int:
    return sum(events.rows.get(source, 0) for source in query.sources)


def flink_python() -> Path:
    """The interpreter of an environment that has Flink, which is installed when it is missing. Raises `Unavailable`."""
    if shutil.which("java") is None:
        raise Unavailable("needs java on PATH")
    folder = cache_folder("flink") / VERSION
    python = folder / "bin" / "python"
    if (folder / "installed").is_file():
        return python
    _say(f"installing apache-flink {VERSION}")
    venv.create(folder, with_pip=True, clear=True)
    _install(python, "setuptools<80", "wheel")
    _install(python, "--no-build-isolation", f"apache-flink=={VERSION}")
    (folder / "installed").touch()
    return python


def _install(python: Path, *what: str) -> None:
    command: Sequence[str] = [str(python), "-m", "pip", "install", "--quiet", *what]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_S)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"pip cannot install {what[-1]}: {error}") from error


def _say(text: str) -> None:
    sys.stderr.write(f"bench: Nexmark: {text} …\n")
