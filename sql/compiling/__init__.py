"""What is made late: modules that take long to import (`later.py`), and loops that numba compiles (`loops.py`)."""
