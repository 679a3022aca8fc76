"""Window types where a row's time alone determines its windows: one module per type.

Types whose windows grow with their rows have no module here (`operators/session.py` folds them).
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):  # each module registers its type
    importlib.import_module(f"{__name__}.{_module.name}")
