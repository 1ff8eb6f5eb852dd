"""Every file of ours in a data directory is in docs/files.md, and in the guide for a move, which says whether it may be removed."""

from __future__ import annotations

import re
from typing import Final

from doc_pages import ROOT

FILES: Final = (ROOT / "docs" / "files.md").read_text(encoding="utf-8")
GUIDE: Final = (ROOT / "docs" / "howto" / "migrate-from-rocketmq.md").read_text(encoding="utf-8")
ROOMS: Final = ("store", "timing", "broker", "server", "replication", "access")
NAME: Final = re.compile(r'^(?:[A-Z_]*_)?(?:FILE|DIRECTORY)(?:: Final)? = "([\w.-]+)"$', re.MULTILINE)
ELSEWHERE: Final = {
    "manifest.json": "in the far tier's place",
    "mark": "in the far tier's place",
    "CURRENT": "of RocksDB: what it tells is refused",
    "orbitmq.far-table": "of an older release, and refused",
    "plain_acl.yml": "of RocketMQ's configuration",
    "rmq-proxy.json": "of RocketMQ's configuration",
}
"""Names in the source that are no file of ours in a data directory."""


def ours() -> list[str]:
    rows = re.findall(r"^\| `([^`]+)` \| ours \|", FILES, re.MULTILINE)
    return [row.replace("<time>/", "") for row in rows]


def test_the_page_of_files_has_every_name_of_the_source() -> None:
    found = {
        name
        for room in ROOMS
        for path in (ROOT / "src" / "orbitmq" / room).rglob("*.py")
        for name in NAME.findall(path.read_text(encoding="utf-8"))
    } - set(ELSEWHERE)
    assert len(found) > 20
    assert sorted(name for name in found if name not in FILES) == []


def test_the_guide_for_a_move_names_every_file_of_ours() -> None:
    assert len(ours()) > 12
    assert [name for name in ours() if f"`{name}`" not in GUIDE] == []
