"""Runs pytest, and a few tests that failed once more, alone: what `make test` does.

Ten thousand tests, some with browsers, clusters of processes, Spark or Apache Kafka, share a machine that other work
shares as well, and now and then one of them waits too long for its turn. Such a test passes when it has the machine to
itself; one that shows a bug fails again. Every test that failed at first is named at the end, for it is a bug of the
test or a rare one of the product, and somebody has to look at it.

    python -m scripts.run_tests -n 4 tests/server
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FAILED: Final = 1  # pytest's exit code where tests ran, and some of them failed
REPEATED_MAX: Final = 5  # more than so many failures are no accident


def main(arguments: Sequence[str]) -> int:
    """In: pytest's own arguments. Returns its exit code: of the last run."""
    with tempfile.TemporaryDirectory(prefix="millstream-tests-") as folder:
        pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={folder}"]
        code = subprocess.run([*pytest, *arguments], check=False).returncode
        failed = sorted(_failed(Path(folder)))
        if code != FAILED or not 0 < len(failed) <= REPEATED_MAX:
            return code
        _say("failed, and run once more, alone", failed)
        code = subprocess.run([*pytest, "-n", "0", "-v", *failed], check=False).returncode
        if code == 0:
            _say("failed beside others and passed alone; look for the reason", failed)
        return code


def _failed(cache: Path) -> Sequence[str]:
    """The names of the tests, as pytest keeps them for its option --last-failed."""
    kept = cache / "v" / "cache" / "lastfailed"
    return list(json.loads(kept.read_text())) if kept.exists() else []


def _say(what: str, tests: Sequence[str]) -> None:
    print(f"\n=== {len(tests)} {what}:", *tests, sep="\n    ", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
