"""What the process that `forked.py` forks from has imported and used. It must not have any thread."""

from __future__ import annotations

import contextlib
import gc
import importlib

from millstream.executor.formats import warm_up

for _name in (
    "millstream.executor.queries.query", "millstream.logcore.server", "pandas", "runpy", "hand_plans",
    "kio.schema.init_producer_id.v5", "kio.serial",  # which load Hypothesis where it is installed: 0.4 s
):  # fmt: skip
    with contextlib.suppress(ImportError):  # pyarrow imports pandas where there is one
        importlib.import_module(_name)
warm_up()
gc.collect()
gc.freeze()
