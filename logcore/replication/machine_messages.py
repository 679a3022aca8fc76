"""All that machines say to each other, are asked, answer and have written, as closed unions of its kinds.

A new kind becomes part of the union of its room, and pyright names each place that must handle it: a `match` ends in
`assert_never`, or in a name for the kinds that are left to others. What comes over a link is one of these kinds, but
perhaps one of another machine (`node_codec.py`): a machine looks before it takes a message.
"""

from __future__ import annotations

from .broker.broker import BrokerAnswer, BrokerRequest
from .controller.controller_messages import ControllerMessage, StandingMessage
from .controller.controller_requests import ControllerAnswer, ControllerRequest
from .raft.quorum_messages import QuorumChange, QuorumMessage
from .replica.replica_core import SyncLog
from .shards.transaction_messages import ForCoordinators, ReplicaMessage, ShardMessage

Message = QuorumMessage | ControllerMessage | StandingMessage | ReplicaMessage | ShardMessage | ForCoordinators
"""Of `Send` and `Received`. `ForCoordinators` does not leave the node: its broker says the message on."""

Request = ControllerRequest | BrokerRequest
"""The body of `Asked`."""

Answer = ControllerAnswer | BrokerAnswer
"""Of `Reply`."""

Change = QuorumChange | SyncLog
"""Of `Persist`: what a machine has written on its disk."""
