"""The documents as their readers see them: pages, and the fenced blocks in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE: Final = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NAMED_ADDRESS: Final = "localhost:9876"
"""The address in documents; tests put their own server there."""


class Block(NamedTuple):
    """A fenced block: its page, the line it begins at, its language, what follows the language, and its text."""

    page: Path
    line: int
    language: str
    info: str
    text: str

    @property
    def place(self) -> str:
        return f"{name(self.page)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    content = page.read_text(encoding="utf-8")
    return [
        Block(page, content.count("\n", 0, found.start()) + 2, found[1], found[2].strip(), found[3])
        for found in FENCE.finditer(content)
    ]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if any(block.language == language for block in blocks(page))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT)) if page.is_relative_to(ROOT) else page.name
