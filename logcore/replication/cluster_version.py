"""The version of what nodes say to each other and write into the metadata log: nodes of two releases can be in one
cluster while it is upgraded.

A release speaks the versions from `oldest` to `newest`. Each connection uses the newest one that both ends speak. The
metadata log, which all nodes read, uses the version of the cluster: it is raised once every node speaks the next one
(`RaiseVersion`), never lowered, and from then on nodes that do not speak it are refused.

| version | what came with it                                                                         |
| ------- | ----------------------------------------------------------------------------------------- |
| 1       | all that has no version written beside it                                                 |
| 2       | the versions themselves: `VersionRaised`, and each node's newest version in its heartbeat |
|         | share groups: `share_messages.py`, and their records in the topic of groups               |

What needs a newer version is written down in `node/spoken_versions.py`, and asked for with `MetadataImage.version`.
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
"""Those of this release."""

UNSAID: Final = ClusterVersions(1, 1)
"""Those of a node that says nothing of versions: they came with 2."""
