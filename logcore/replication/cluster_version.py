"""The version of messages between nodes and of the metadata log. It allows nodes of two releases in one cluster while
the cluster is upgraded.

A release speaks the versions from `oldest` to `newest`. Each connection uses the newest version that both ends speak.
The metadata log, which all nodes read, uses the version of the cluster. It can be raised once every node speaks the
next version (`RaiseVersion`) and is never lowered. From then on, nodes that do not speak it are refused.

| version | what came with it                                                                         |
| ------- | ----------------------------------------------------------------------------------------- |
| 1       | everything that is not marked with a version                                              |
| 2       | the versions themselves: `VersionRaised`, and each node's newest version in its heartbeat |
|         | share groups: `share_messages.py`, and their records in the topic of groups               |

`node/spoken_versions.py` lists what needs a newer version; code checks it with `MetadataImage.version`.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class ClusterVersions(NamedTuple):
    """From `oldest` to `newest`, both included."""

    oldest: int
    newest: int

    def __str__(self) -> str:
        return f"versions {self.oldest} to {self.newest}"

    def shared_with(self, other: ClusterVersions) -> int | None:
        """The newest version that both speak.

        >>> ClusterVersions(1, 2).shared_with(ClusterVersions(1, 1))
        1
        >>> ClusterVersions(2, 2).shared_with(ClusterVersions(1, 1)) is None
        True
        """
        newest = min(self.newest, other.newest)
        return newest if newest >= max(self.oldest, other.oldest) else None


VERSIONS: Final = ClusterVersions(1, 2)
"""The versions of this release."""

UNSAID: Final = ClusterVersions(1, 1)
"""The versions of a node that sends no versions: only version 2 introduced them."""
