"""The documents as their readers see them: pages, and the fenced blocks in them."""

from __future__ import annotations

import re
import socket
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


def free_ports() -> tuple[int, int, int, int]:
    """Four free ports; the one below the second by two is free as well."""
    while True:
        with (
            socket.create_server(("127.0.0.1", 0)) as first,
            socket.create_server(("127.0.0.1", 0)) as second,
            socket.create_server(("127.0.0.1", 0)) as third,
            socket.create_server(("127.0.0.1", 0)) as fourth,
        ):
            ports = tuple(int(each.getsockname()[1]) for each in (first, second, third, fourth))
            try:
                socket.create_server(("127.0.0.1", ports[1] - 2)).close()
            except OSError:
                continue
            return ports[0], ports[1], ports[2], ports[3]
