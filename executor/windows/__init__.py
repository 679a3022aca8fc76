"""Where a row's time alone says which windows it is in: a module per type of window.

Types whose windows grow with their rows have none (`operators/session.py` folds those).
"""

from __future__ import annotations

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):  # each says which type it places
    importlib.import_module(f"{__name__}.{_module.name}")
