"""The macros of the adapter: materializations, seeds and tests."""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
