"""Real processes under faults, seed after seed: `python -m tests.cluster --seeds 1:11 --seconds 120`; see README.md."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from .network import isolated, why_no_namespaces
from .totals import code_hash, counts_of, summary, warning

_REPOSITORY = Path(__file__).resolve().parents[2]


def main() -> int:
    """Prints a line per run. The exit code is 1 as soon as one run found an anomaly."""
    given = _arguments()
    if given.sum:
        sys.stdout.write(summary(map(json.loads, given.sum.read_text().splitlines())) + "\n")
        return 0
    first, _, end = given.seeds.partition(":")
    failed = 0
    for seed in range(int(first), int(end or int(first) + 1)):
        if given.until and time.strftime("%H:%M") >= given.until:
            break
        failed = max(failed, _one(given, seed))
        if failed and not given.go_on:
            break
    return failed


def _one(given: Any, seed: int) -> int:
    """Runs it, and keeps its folder if something was found, or has to be looked at."""
    folder = Path(given.folder or tempfile.gettempdir()) / f"cluster-{given.servers}-{seed}-{int(time.time())}"
    code = code_hash()
    exit_code, seconds, said = run_seed(given.servers, seed, given.seconds, given.session_ms, folder)
    counts = counts_of(folder)
    line = {"seed": seed, "servers": given.servers, "code": code, "exit": exit_code, "ended": time.strftime("%H:%M:%S")}
    line |= {"faults_s": given.seconds, "seconds": round(seconds), "counts": counts, "folder": str(folder)}
    sys.stdout.write(json.dumps(line) + "\n" + (said if exit_code else "") + warning(counts))
    sys.stdout.flush()
    if given.totals:
        with given.totals.open("a") as totals:
            totals.write(json.dumps(line) + "\n")
    if exit_code == 0 and not warning(counts):
        shutil.rmtree(folder, ignore_errors=True)
    return exit_code


def run_seed(
    servers: str, seed: int, seconds: float, session_ms: int, folder: Path, *, brief: bool = False
) -> tuple[int, float, str]:
    """Returns the exit code, the seconds that it took and what was said."""
    arguments = ["-m", "tests.cluster.inside", "--servers", servers, "--seed", str(seed), "--seconds", str(seconds)]
    arguments += ["--session-ms", str(session_ms), "--folder", str(folder), *(["--brief"] if brief else [])]
    command = [sys.executable, *arguments] if why_no_namespaces() else isolated(arguments)
    began = time.monotonic()
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    return done.returncode, time.monotonic() - began, done.stdout + done.stderr


def _arguments() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster")
    parser.add_argument("--seeds", default="1", help="FIRST:END, the end not included, or one seed")
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults, per seed")
    parser.add_argument("--session-ms", type=int, default=2_000)
    parser.add_argument("--servers", choices=("millstream", "kafka"), default="millstream")
    parser.add_argument("--folder", help="where runs that fail stay; default: the folder for temporary files")
    parser.add_argument("--totals", type=Path, help="a file that gets a line per run")
    parser.add_argument("--sum", type=Path, help="add up such a file, and run nothing")
    parser.add_argument("--until", help="HH:MM, after which no run begins")
    parser.add_argument("--go-on", action="store_true", help="whatever was found")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
