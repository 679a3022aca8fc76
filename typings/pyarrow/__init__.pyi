"""pyarrow's classes come from C++ and its compute functions are made at import, so pyright sees few of them.

Every name of it is Any, here and in compute.pyi, which costs nothing: without this it would be unknown, or an error.
"""

from typing import Any

def __getattr__(name: str) -> Any: ...
