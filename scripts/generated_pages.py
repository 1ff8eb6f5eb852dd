"""Pages that are made from the code: write them, or say which ones are stale."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_compare(pages: Mapping[Path, str], arguments: list[str], script: str) -> int:
    """Write every page; with `--check` among the arguments only compare. The exit code: 1 when one is stale."""
    if "--check" not in arguments:
        for path, text in pages.items():
            path.write_text(text, encoding="utf-8")
        return 0
    stale = [str(path) for path, text in pages.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{path} is stale; run: python scripts/{Path(script).name}", file=sys.stderr)
    return 1 if stale else 0
