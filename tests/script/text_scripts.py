"""Scripts as text: a command, `----`, what it shows, and a blank line.

Rules of this file
1. With `ORBITMQ_REWRITE=1` what is shown now is written into the script, and nothing is compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path


def play(path: Path, run: Callable[[str], Sequence[str]]) -> None:
    """`run(command)` gives the lines that it shows; they have to be those of the script."""
    rewrites = os.environ.get("ORBITMQ_REWRITE") == "1"
    written: list[str] = []
    lines = iter(path.read_text().splitlines())
    for line in lines:
        written.append(line)
        if not line or line.startswith("#"):
            continue
        assert next(lines, None) == "----", f"{path.name}: {line!r} is not followed by ----"
        expected = []
        for shown in lines:
            if not shown:
                break
            expected.append(shown)
        actual = run(line)
        written += ["----", *actual, ""]
        assert rewrites or actual == expected, f"{path.name}: {line}"
    if rewrites:
        path.write_text("\n".join(written).rstrip("\n") + "\n")
