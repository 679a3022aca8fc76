"""Check the import contracts of pyproject.toml ([tool.importlinter]) with import-linter.

`lint-imports` alone sees only the modules of the folder `millstream/`: it walks directories, follows no links, and
knows nothing of the mapping in pyproject.toml. So it works in a copy of the tree that `import_tree.py` lays out.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path

from importlinter.cli import lint_imports

from scripts.import_tree import REPOSITORY, make_import_tree


def check(*, verbose: bool) -> int:
    """The exit status of import-linter over the packages as Python imports them."""
    with tempfile.TemporaryDirectory() as directory:
        packages = Path(directory) / "packages"
        shutil.copytree(make_import_tree(), packages, ignore=shutil.ignore_patterns("__pycache__"))
        with contextlib.chdir(packages):  # import-linter puts the working directory in front of the import path
            return lint_imports(
                config_filename=str(REPOSITORY / "pyproject.toml"), no_cache=True, no_logo=True, verbose=verbose
            )


if __name__ == "__main__":
    sys.exit(check(verbose="--verbose" in sys.argv))
