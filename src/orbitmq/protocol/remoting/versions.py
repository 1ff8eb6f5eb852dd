"""Release ordinals and language codes: what the `version` and `language` members of a header mean.

Both are small enumerations in which a number on the wire stands for a name. From 4.0.0 on the ordinal of a release
follows a formula (every minor line has room for ten patch releases, each preceded by its snapshot), so no list of
releases is kept here.

Rules of this file
1. Names and numbers of other releases are only ever displayed or compared; nothing is refused because of them.
2. We announce ourselves as a released version (`OUR_VERSION`): clients keep the ordinal of the heartbeat answer as
   the broker's version and derive features from it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

OUR_VERSION: Final = 479
"""Ordinal sent with every command of ours: release 5.3.3, whose protocol is the one implemented here."""

HIGHEST_VERSION: Final = 612
"""Ordinal that stands for "newer than anything known"."""

VERSION_STANDARD_JSON: Final = 401
"""From this ordinal (4.9.4) on clients get route data in strict JSON from a Java name server."""

VERSION_REGISTERS_MAPPINGS: Final = 413
"""From this ordinal (5.0.0) on the compressed registration body ends with the static-topic mappings."""

_FIRST_4_0_0: Final = 213
_PER_MAJOR: Final = 200
_PER_MINOR: Final = 20
_V3_4_9: Final = 121
_RELEASE = re.compile(r"[vV]?(\d+)[._](\d+)[._](\d+)([-_]SNAPSHOT)?", re.ASCII)


class Language(StrEnum):
    """Programming language of a sender. The order of the members gives the ordinals of the binary header."""

    JAVA = "JAVA"
    CPP = "CPP"
    DOTNET = "DOTNET"
    PYTHON = "PYTHON"
    DELPHI = "DELPHI"
    ERLANG = "ERLANG"
    RUBY = "RUBY"
    OTHER = "OTHER"
    HTTP = "HTTP"
    GO = "GO"
    PHP = "PHP"
    OMS = "OMS"
    RUST = "RUST"
    NODE_JS = "NODE_JS"


LANGUAGES: Final = tuple(Language)
"""Languages by ordinal."""

LANGUAGE_ORDINALS: Final = {language: ordinal for ordinal, language in enumerate(LANGUAGES)}


def version_ordinal(release: str) -> int:
    """Ordinal of a release such as `5.3.3`, `V4_9_8` or `5.3.3-SNAPSHOT`.

    Raises ValueError for text that is no release, and for releases without an ordinal: those before 4.0.0
    (3.4.9 excepted) and those that the numbering has no room for.
    """
    match = _RELEASE.fullmatch(release)
    if match is None:
        raise ValueError(f"{release!r} is not a release; expected a form such as '5.3.3'")
    major, minor, patch = (int(part) for part in match.group(1, 2, 3))
    snapshot = match.group(4) is not None
    if (major, minor, patch) == (3, 4, 9) and not snapshot:
        return _V3_4_9
    if major not in (4, 5) or minor > 9 or patch > 9:
        raise ValueError(f"release {release!r} has no known ordinal; known are 3.4.9 and 4.0.0 to 5.9.9")
    return _FIRST_4_0_0 + _PER_MAJOR * (major - 4) + _PER_MINOR * minor + 2 * patch - snapshot


def version_name(ordinal: int) -> str:
    """Name of an ordinal in the form admin tools display: `V5_3_3`, `V5_3_3_SNAPSHOT`, `HIGHER_VERSION`.

    Ordinals before 4.0.0 that are not known by name become `V3_ORDINAL_<n>`; negative ones are treated alike.
    """
    if ordinal >= HIGHEST_VERSION:
        return "HIGHER_VERSION"
    if ordinal < _FIRST_4_0_0 - 1:
        return "V3_4_9" if ordinal == _V3_4_9 else f"V3_ORDINAL_{ordinal}"
    steps = ordinal - _FIRST_4_0_0 + 1
    major, rest = divmod(steps, _PER_MAJOR)
    minor, rest = divmod(rest, _PER_MINOR)
    patch, released = divmod(rest, 2)
    return f"V{major + 4}_{minor}_{patch}" + ("" if released else "_SNAPSHOT")
