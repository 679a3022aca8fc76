"""Why a mirror, or one partition of it, cannot continue."""

from __future__ import annotations

from millstream.errors import LogError


class InvalidMirror(LogError):
    """The settings of a mirror are invalid."""

    code = "INVALID_MIRROR"


class MirrorOfItself(InvalidMirror):
    """The source is the log that is copied to."""

    code = "MIRROR_OF_ITSELF"


class DivergedMirror(LogError):
    """The source no longer has the records that were copied, or the copy is not from it. Waiting does not help."""

    code = "DIVERGED_MIRROR"
