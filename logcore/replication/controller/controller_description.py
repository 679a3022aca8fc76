"""What the controller reports to operators about the quorum and the brokers. It decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .operations_messages import BrokerSeen, MemberLag, QuorumDescription, QuorumHere

if TYPE_CHECKING:
    from .controller import Controller


def quorum_described(controller: Controller) -> QuorumDescription:
    """In: the deciding controller."""
    quorum = controller.quorum
    now_ms = controller.now_ms
    return QuorumDescription(
        quorum.id,
        quorum.term,
        quorum.commit,
        quorum.log.last_index,
        quorum.log.voters,
        tuple(MemberLag(node, index, max(0, now_ms - heard_ms)) for node, index, heard_ms in quorum.members()),
        tuple(
            BrokerSeen(node, max(0, now_ms - heard_ms), leaving, newest)
            for node, heard_ms, leaving, newest in controller.brokers.seen()
        ),
        controller.image,
    )


def quorum_here(controller: Controller) -> QuorumHere:
    """In: the controller of any node."""
    quorum = controller.quorum
    return QuorumHere(quorum.leader, quorum.term, quorum.commit, quorum.log.last_index)
