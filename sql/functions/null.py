"""Functions about NULL."""

from __future__ import annotations

from functools import partial

from .function import Function, scalar

null_function = partial(scalar, category="CONDITIONAL")

FUNCTIONS: tuple[Function, ...] = (
    null_function(
        "COALESCE",
        signature="(first T, others T...) -> T",
        doc="The first value that is not NULL. All must be of one type.",
        sql="coalesce(:first, :others)",
        examples={"COALESCE(NULL, 2, 3)": "2", "COALESCE(CAST(NULL AS STRING), NULL)": "NULL"},
    ),
    null_function(
        "IFNULL",
        signature="(value T, otherwise T) -> T",
        doc="`value`, or `otherwise` where it is NULL.",
        sql="coalesce(:value, :otherwise)",
        examples={"IFNULL(NULL, 'none')": "'none'", "IFNULL(CAST(NULL AS STRING), NULL)": "NULL"},
    ),
    null_function(
        "NULLIF",
        signature="(value T, unwanted T) -> T",
        doc="`value`, but NULL where it equals `unwanted`.",
        sql="nullif(:value, :unwanted)",
        examples={"NULLIF(1, 1)": "NULL", "NULLIF(1, NULL)": "1", "NULLIF(CAST(NULL AS INTEGER), 1)": "NULL"},
    ),
)
