"""Inputs and effects of the state machines of replication.

A machine takes one input per step and returns effects; the shell carries them out in this order. A machine never waits:
to write something it returns a `Persist` with an `operation`, and it continues when it gets `Persisted` with the same
operation. The same machines run on sockets and files (`node_runtime.py`) and in the simulator (`tests/simulation/`).

A node runs several machines, each under a name: `controller` (the metadata quorum and what it decides) and `broker`
(its replicas). They send messages to each other as to other nodes: a message to the own node is delivered, too.
Inputs and effects are named tuples, because millions of them are created: check their types, never their lengths.
`machine_messages.py` lists everything that they may carry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, NewType, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from .controller.metadata_image import MetadataImage
    from .machine_messages import Answer, Change, Message, Request
    from .raft.quorum_messages import LogRecord

NodeId = NewType("NodeId", int)
Operation = NewType("Operation", int)  # numbered by the machine, unique within one life of it
RequestId = NewType("RequestId", int)  # given by the shell to a client's request

CONTROLLER: Final = "controller"
BROKER: Final = "broker"

_Message = TypeVar("_Message", covariant=True)
_Request = TypeVar("_Request", covariant=True)


# Inputs


class Received(NamedTuple, Generic[_Message]):
    """A message from a machine of this or another node. Any message may be lost, late, duplicated or out of order."""

    sender: NodeId
    message: _Message


class Tick(NamedTuple):
    """Time has passed. `now_ms` is monotonic from a node's start to its end, and unrelated to the time of day.

    `wall_ms` is the time of day, milliseconds since 1970. It may jump, so it is only used for times that people see.
    """

    now_ms: int
    wall_ms: int = 0


class Persisted(NamedTuple):
    """The change of this operation and all earlier changes are durable. `failed`: the error; they never will be."""

    operation: Operation
    failed: str | None = None


class Asked(NamedTuple, Generic[_Request]):
    """A client's request; its answer is a `Reply` with the same `request`."""

    request: RequestId
    body: _Request


class Committed(NamedTuple):
    """Final decisions of the metadata quorum: an effect of `controller`, and an input of the node's other machines.

    Every node gets the same records at the same indexes, in order, starting at index 1 or after a snapshot. An `image`
    that is not None replaces everything before: it is the fold of all records below `first_index`. `folded`: the image
    after these records, so that only one machine of a node has to compute it; None if none has done so yet.
    """

    first_index: int
    records: tuple[LogRecord, ...]
    image: MetadataImage | None = None
    folded: MetadataImage | None = None


Input: TypeAlias = "Received[Message] | Tick | Persisted | Asked[Request] | Committed"


# Effects


class Send(NamedTuple):
    """Send to the machine of this name on that node; None: the machine with the sender's own name."""

    to: NodeId
    message: Message
    machine: str | None = None


class Persist(NamedTuple):
    """Carry out this change on the disk, after earlier changes, then step `Persisted`. Reads see it immediately."""

    operation: Operation
    change: Change


class Reply(NamedTuple):
    request: RequestId
    response: Answer


class Panic(NamedTuple):
    """End the process: continuing could lose or alter acknowledged records. The reason is for people."""

    reason: str


Effect = Send | Persist | Reply | Panic | Committed


class Machine(Protocol):
    def step(self, given: Input) -> list[Effect]:
        """Takes one input; returns effects, in order. Raises nothing for any input that another node can cause."""
        ...
