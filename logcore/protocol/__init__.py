"""The Kafka protocol: a server for other processes, and the log as a client over the network.

`kio` describes the messages. Where Hypothesis is installed, kio teaches it how to make them up, which nobody here wants
and which was a tenth of the time in which a server started: so kio is imported here first, and finds no Hypothesis.
"""

import importlib
import sys

if "hypothesis" not in sys.modules:
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # Python's own way to say that it cannot be imported
    try:
        importlib.import_module("kio.static.primitive")
    finally:
        del sys.modules["hypothesis"]
