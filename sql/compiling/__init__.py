"""Modules that are imported late because they take long (`later.py`), and loops that numba compiles (`loops.py`)."""
