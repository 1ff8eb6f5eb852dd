"""The word that somebody may have meant, for errors about one that nobody knows.

Rules of this file
1. The case of letters does not count.
"""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like this one, as it is written there; None when none does. Costs a comparison with each."""
    import difflib  # for a mistake alone

    folded: dict[str, str] = {}
    for one in known:
        folded.setdefault(one.lower(), one)
    found = difflib.get_close_matches(word.lower(), folded, n=1)
    return folded[found[0]] if found else None
