"""Small and capital letters as Java makes them, in SQL. DuckDB maps each letter to one other: ß to ẞ, İ to i, and Σ at
the end of a word to σ."""

from __future__ import annotations

_ENDINGS = r"regexp_replace(:text, '(\pL)Σ(\PL|$)', '\1ς\2', 'g')"
_WITH_ENDINGS = f"CASE WHEN contains(:text, 'Σ') THEN {_ENDINGS} ELSE :text END"

SMALL_LETTERS = f"lower(replace({_WITH_ENDINGS}, 'İ', 'i̇'))"
CAPITALS = "upper(replace(:text, 'ß', 'SS'))"
