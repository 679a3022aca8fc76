"""`make test` compiles all loops before the workers of pytest begin, which otherwise all compile the same."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent
from typing import Final

from repository import REPOSITORY

# A loop that another one calls is compiled with it; where that came out of numba's cache, it has no signature itself.
_PROGRAM: Final = dedent("""
    import sys
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
    print(*(f"{loop.py_func.__module__}.{loop.py_func.__name__}" for loop in loops if loop not in compiled))
""")


def test_no_loop_is_left_for_the_tests_to_compile() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [], "scripts/compile_kernels.py has to run these, too"
