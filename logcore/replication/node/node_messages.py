"""Requests of clients that one node sends to the machines of another, and the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..machine_messages import Answer, Request

NODE = "node"
"""The machine name of these messages: the node itself takes them, not a machine."""


class AskMachine(NamedTuple):
    """A client's request to one node, for a machine of another."""

    number: int  # unique in the asking process
    life: int  # identifies the asking process, which ignores answers to an earlier one
    machine: str
    body: Request


class MachineAnswered(NamedTuple):
    number: int
    life: int
    answer: Answer


NodeMessage = AskMachine | MachineAnswered
