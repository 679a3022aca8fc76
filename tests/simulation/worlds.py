"""The worlds, by name; each is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from .world import World

WORLDS: Final = {
    "cluster": "tests.simulation.cluster_world:ClusterWorld",
    "quorum": "tests.simulation.quorum_world:QuorumWorld",
    "control": "tests.simulation.control_world:ControlWorld",
}


def world_named(name: str) -> type[World]:
    """Raises KeyError."""
    module, _, attribute = WORLDS[name].partition(":")
    return getattr(import_module(module), attribute)
