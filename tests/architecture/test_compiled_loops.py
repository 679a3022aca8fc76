"""`make test` compiles all loops before the workers of pytest begin, which otherwise all compile the same."""

from __future__ import annotations

import re
import subprocess
import sys
from textwrap import dedent
from typing import Final

from repository import REPOSITORY

# A loop that another one calls is compiled with it; where that came out of numba's cache, it has no signature itself.
_PROGRAM: Final = dedent("""
    import sys

    given_modules = sys.argv[1:]
    from numba.core.dispatcher import Dispatcher
    from scripts.compile_kernels import main

    main()
    modules = [module for name, module in sys.modules.items() if name.startswith("millstream.")]
    loops = {each: None for module in modules for each in vars(module).values() if isinstance(each, Dispatcher)}
    compiled = [loop for loop in loops if loop.signatures]
    for loop in compiled:
        called = [loop.py_func.__globals__.get(name) for name in loop.py_func.__code__.co_names]
        compiled += [each for each in called if isinstance(each, Dispatcher) and each not in compiled]
    assert len(loops) > 50
    # What is compiled for one signature is compiled when its module is loaded, which some are at their first use.
    homes = {loop.py_func.__module__ for loop in loops}
    print(*({module for module in given_modules if module not in homes}))
    print(*(f"{loop.py_func.__module__}.{loop.py_func.__name__}" for loop in loops if loop not in compiled))
""")


def modules_with_loops() -> list[str]:
    """By their text: some are loaded at their first use."""
    declared = re.compile(r"^@(loop|inlined_loop|compiled\()", re.MULTILINE)
    packages = ("sql", "planner", "executor", "logcore", "server", "repl")
    files = [file for package in packages for file in (REPOSITORY / package).rglob("*.py")]
    found = [file for file in files if declared.search(file.read_text(encoding="utf-8"))]
    return [".".join(("millstream", *file.relative_to(REPOSITORY).with_suffix("").parts)) for file in found]


def test_no_loop_is_left_for_the_tests_to_compile() -> None:
    modules = modules_with_loops()
    assert {"millstream.logcore.records.bulk", "millstream.executor.formats.compiled.scan"} <= {*modules}
    command = [sys.executable, "-c", _PROGRAM, *modules]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], "scripts/compile_kernels.py has to run these, too"
