"""What the process that `forked.py` forks from has imported and used. It must not have any thread."""

from __future__ import annotations

import contextlib
import gc
import importlib

from millstream.executor.formats import warm_up

for _name in ("millstream.executor.queries.query", "millstream.logcore.server", "pandas", "runpy", "hand_plans"):
    with contextlib.suppress(ImportError):  # pyarrow imports pandas where there is one
        importlib.import_module(_name)
warm_up()
gc.collect()
gc.freeze()
