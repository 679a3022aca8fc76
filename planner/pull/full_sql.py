"""The property that gives pull queries all of SQL: in a file of its own, as clients load no more of the planner."""

from __future__ import annotations

from typing import Final

FULL_SQL: Final = "millstream.pull.full.sql"
