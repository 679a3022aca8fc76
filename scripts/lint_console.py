"""Check the types of the console's JavaScript (JSDoc) with TypeScript's compiler, where node and npm are.

    python scripts/lint_console.py

Fetches the compiler from npm's registry, in the version below, into npm's own cache.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parents[1] / "server" / "console" / "tsconfig.json"
TYPESCRIPT: Final = "typescript@5.9.3"  # Apache-2.0


def check() -> int:
    """The exit status of the compiler; 0 where it cannot run, which is said."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        print("lint_console: NOT CHECKED: the types of the console's JavaScript need node and npm")
        return 0
    has_compiler = [npm, "exec", "--yes", "--package", TYPESCRIPT, "--", "tsc", "--version"]
    if subprocess.run(has_compiler, capture_output=True, check=False).returncode != 0:
        print(f"lint_console: NOT CHECKED: npm cannot fetch {TYPESCRIPT}")
        return 0
    return subprocess.run([*has_compiler[:-1], "--project", str(PROJECT)], check=False).returncode


if __name__ == "__main__":
    sys.exit(check())
