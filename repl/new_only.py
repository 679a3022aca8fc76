"""Whether a push query or PRINT shows only records that arrive while it runs. A person who sees no row is told so."""

from __future__ import annotations

from typing import Final

from millstream.errors import MillstreamError

from ..server.client import DataClient
from ..sql.settings.property_table import OFFSET_RESET
from ..sql.tokens import tokenize

NEW_ONLY: Final = "new records only"
"""For the bar below a query that has shown no row yet."""


def advice_for_new_only(client: DataClient, text: str) -> str | None:
    """What to do to see the records that were there before the statement. None if it reads them, or if this is unknown.

    In: `text`: a push query or a PRINT.
    """
    words = [str(token).upper() for token in tokenize(text)]
    if words[:1] == ["PRINT"]:
        return None if "FROM" in words else "PRINT shows new records only; with FROM BEGINNING all of them."
    try:
        listed = client.execute("SHOW PROPERTIES;")
    except MillstreamError:
        return None
    properties = [item for entity in listed for item in entity.get("properties", ())]
    reset = next((str(item["value"]) for item in properties if item["name"] == OFFSET_RESET.name), "")
    if reset.lower() != "latest":
        return None
    start = f"SET '{OFFSET_RESET.name}' = 'earliest';"
    return f"It read only what came to its streams meanwhile. {start} reads what was there, too."
