"""Write the tables of docs/configuration.md, the reference of settings and properties, from their declarations.

    python scripts/configuration_reference.py

What stands above the tables is written by hand and stays. A test keeps the page equal to what this writes.
"""

from __future__ import annotations

from pathlib import Path

from millstream.server.config.configuration_reference import reference_tables

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def main() -> None:
    head = PAGE.read_text(encoding="utf-8").partition("## Settings\n")[0]
    PAGE.write_text(head + reference_tables(), encoding="utf-8")


if __name__ == "__main__":
    main()
