"""What nodes ask each other's machines for their clients: requests and answers over the links."""

from __future__ import annotations

from typing import Any, NamedTuple

NODE = "node"
"""The name that these are sent under: no machine takes them."""


class AskMachine(NamedTuple):
    """A client's request at one node, for a machine of another."""

    number: int  # of the asking process, never used twice
    life: int  # of the asking process: an answer to an earlier one is not taken
    machine: str
    body: Any


class MachineAnswered(NamedTuple):
    number: int
    life: int
    answer: Any
