"""Digests of files with holes, which go on when the file has grown."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.limits.store import BACKUP_PIECE_BYTES as PIECE
from orbitmq.server.backup.digest import PieceDigest, pieces
from orbitmq.store.files import File, OsFiles


def made(path: Path, size: int, *parts: tuple[int, bytes]) -> File:
    file = OsFiles().open(path, create=True)
    file.truncate(size)
    for at, data in parts:
        file.pwrite(data, at)
    return file


def test_zeros_are_neither_read_nor_written(tmp_path: Path) -> None:
    file = made(tmp_path / "a", 8 * PIECE, (10, b"one"), (3 * PIECE, b"two\0\0"))
    assert list(pieces(file, 8 * PIECE)) == [(0, b"\0" * 10 + b"one"), (3, b"two")]
    assert list(pieces(file, 3 * PIECE + 2)) == [(0, b"\0" * 10 + b"one"), (3, b"tw")]


def test_holes_make_no_difference(tmp_path: Path) -> None:
    holes = made(tmp_path / "a", 4 * PIECE, (2 * PIECE + 1, b"x"))
    full = made(tmp_path / "b", 4 * PIECE, (0, bytes(4 * PIECE)), (2 * PIECE + 1, b"x"))
    other = made(tmp_path / "c", 4 * PIECE, (PIECE + 1, b"x"))
    assert PieceDigest().take(holes, 4 * PIECE) == PieceDigest().take(full, 4 * PIECE)
    assert PieceDigest().take(holes, 4 * PIECE) != PieceDigest().take(other, 4 * PIECE)


@pytest.mark.parametrize("first", [0, 1, PIECE - 1, PIECE, PIECE + 7, 2 * PIECE])
def test_a_file_that_grew_is_gone_on_with(tmp_path: Path, first: int) -> None:
    source = made(tmp_path / "a", 4 * PIECE, (0, b"A" * first))
    target = made(tmp_path / "b", 4 * PIECE)
    digest = PieceDigest()
    digest.take(source, first, target)
    source.pwrite(b"B" * (PIECE + 5), first)
    end = first + PIECE + 5
    assert digest.take(source, end, target) == PieceDigest().take(source, end) == PieceDigest().take(target, end)
    written = digest.written_bytes
    assert digest.take(source, end, target) == digest.text
    assert digest.written_bytes == written
    assert target.pread(end + 10, 0) == b"A" * first + b"B" * (PIECE + 5) + bytes(10)


def test_what_lies_behind_the_end_does_not_count(tmp_path: Path) -> None:
    source = made(tmp_path / "a", PIECE, (0, b"counts, and does not"))
    assert PieceDigest().take(source, 6) == PieceDigest().take(made(tmp_path / "b", PIECE, (0, b"counts")), 6)
