"""`python -m millstream` is the command `millstream`."""

from __future__ import annotations

from millstream.cli import command

if __name__ == "__main__":
    command()
