"""What pydantic finds wrong with a value, in the words of the person who gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_WHOLE_NUMBER: Final = "must be a whole number"
_REASONS: Final = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_from_float": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_parsing_size": _WHOLE_NUMBER,
    "int_type": _WHOLE_NUMBER,
    "list_type": "must be a list",
    "missing": "must be given",
    "model_type": "must be a table",
    "path_type": "must be a path, in quotes",
    "string_type": "must be a text, in quotes",
    "tuple_type": "must be a list, in brackets",
}
_COMPARED: Final = {
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
}
_OF_VALIDATORS: Final = "Value error, "
_OF_TYPES: Final = "Input should "


def reason_of(error: ErrorDetails) -> str:
    """The predicate of a sentence about the value ("must be a whole number"), or what our own check has said about it.

    >>> least = "Input should be greater than or equal to 1"
    >>> reason_of({"type": "greater_than_equal", "loc": (), "msg": least, "input": 0})
    'must be at least 1'
    >>> reason_of({"type": "value_error", "loc": (), "msg": "Value error, 'x' is not an address", "input": "x"})
    "'x' is not an address"
    """
    if (known := _REASONS.get(error["type"])) is not None:
        return known
    message = error["msg"].removeprefix(_OF_VALIDATORS)
    if not message.startswith(_OF_TYPES):
        return message
    for compared, plain in _COMPARED.items():
        message = message.replace(compared, plain)
    return f"must {message.removeprefix(_OF_TYPES)}"
