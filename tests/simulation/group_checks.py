"""What holds for consumer groups, whoever coordinates them (I18)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.logcore.client import TopicPartition
from millstream.logcore.cores.group_messages import CheckCommit

from .group_members import PATIENCE_MS
from .kernel import InvariantViolated, Kernel
from .sightings import Sighting


class GroupChecks:
    """The epochs of a group begin anew once all its members have left or are forgotten. So an owner that may be gone
    contradicts nobody.

    State: what coordinators have told members, in the order in which they did.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._owners: dict[str, dict[tuple[int, TopicPartition], str]] = {}
        self._members: dict[str, Sighting] = {}  # those that coordinators knew when they last asked
        self._floors: dict[str, dict[TopicPartition, int]] = {}

    def floors(self, group: str) -> dict[TopicPartition, int]:
        """What the group is known to have committed: nothing below may ever be found, or be committed, from now on."""
        return dict(self._floors.get(group, {}))

    def knows(self, member_id: str, sighting: Sighting) -> None:
        """A coordinator has answered a member, as such."""
        self._members[member_id] = sighting

    def leaves(self, member_id: str) -> None:
        """The member is about to say so: from now on it may be true, whether that is heard or not."""
        self._members.pop(member_id, None)

    def _may_be_gone(self, member_id: str) -> bool:
        sighting = self._members.get(member_id)
        return sighting is None or not sighting.surely_holds(self._kernel, PATIENCE_MS)

    def owns(self, group: str, generation: int, member_id: str, places: Iterable[TopicPartition]) -> None:
        """A member is told all that it reads."""
        owners = self._owners.setdefault(group, {})
        for key in [key for key, owner in owners.items() if owner == member_id and key[0] == generation]:
            del owners[key]  # what it read before the epochs began anew
        for place in places:
            owner = owners.get((generation, place), member_id)
            owners[generation, place] = member_id
            if owner != member_id and not self._may_be_gone(owner):
                raise InvariantViolated(
                    "I18", f"{owner} and {member_id} read {place} in generation {generation} of {group}"
                )

    def committed(
        self,
        group: str,
        check: CheckCommit,
        offsets: Mapping[TopicPartition, int],
        floors: Mapping[TopicPartition, int],
    ) -> None:
        """A commit is acknowledged; `floors` are those of when it was asked for."""
        known = self._floors.setdefault(group, {})
        for place, offset in offsets.items():
            if offset < floors.get(place, 0):
                raise InvariantViolated(
                    "I18",
                    f"{check.member_id} moves {place} of {group} from {floors[place]} back to {offset},"
                    f" in generation {check.generation}",
                )
            known[place] = max(known.get(place, 0), offset)

    def found(self, group: str, offsets: Mapping[TopicPartition, int], floors: Mapping[TopicPartition, int]) -> None:
        """Somebody reads what the group has committed; `floors` are those of when it was asked for."""
        known = self._floors.setdefault(group, {})
        for place, floor in floors.items():
            if offsets.get(place, -1) < floor:
                raise InvariantViolated(
                    "I18", f"{group} had committed {floor} of {place}, and {offsets.get(place)} is found"
                )
        for place, offset in offsets.items():
            known[place] = max(known.get(place, 0), offset)
