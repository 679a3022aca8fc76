"""What nodes ask each other's machines for their clients: requests and answers over the links."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..machine_messages import Answer, Request

NODE = "node"
"""The name that these are sent under: no machine takes them."""


class AskMachine(NamedTuple):
    """A client's request at one node, for a machine of another."""

    number: int  # of the asking process, never used twice
    life: int  # of the asking process: an answer to an earlier one is not taken
    machine: str
    body: Request


class MachineAnswered(NamedTuple):
    number: int
    life: int
    answer: Answer


NodeMessage = AskMachine | MachineAnswered
