"""Why a mirror, or one partition of it, does not go on."""

from __future__ import annotations

from millstream.errors import LogError


class InvalidMirror(LogError):
    """Settings of a mirror that cannot be used."""

    code = "INVALID_MIRROR"


class MirrorOfItself(InvalidMirror):
    """The source is the log that is copied to."""

    code = "MIRROR_OF_ITSELF"


class DivergedMirror(LogError):
    """The source is not what was copied any more, or what is here did not come from it. Waiting does not help."""

    code = "DIVERGED_MIRROR"
