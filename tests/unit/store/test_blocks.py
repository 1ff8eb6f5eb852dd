"""Files of blocks: appended to, cut, replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.store.blocks import BlockFile, decode_block, decode_blocks, encode_block
from orbitmq.store.files import OsFiles

MAGIC = b"ORBTEST1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orbitmq.test"


def bodies(path: Path) -> list[tuple[int, bytes]]:
    return [(block.kind, bytes(block.body)) for block in decode_blocks(path.read_bytes(), MAGIC)]


def test_blocks_come_back_in_order(path: Path) -> None:
    file = BlockFile(OsFiles(), path, MAGIC)
    assert not file.exists
    assert file.read() is None
    file.append([encode_block(1, b"one"), encode_block(2, b"")])
    file.append([encode_block(3, b"three")])
    file.datasync()
    assert bodies(path) == [(1, b"one"), (2, b""), (3, b"three")]
    assert list(file.blocks()) == [encode_block(1, b"one"), encode_block(2, b""), encode_block(3, b"three")]
    file.close()


@pytest.mark.parametrize("at", range(8, 38))
def test_a_changed_byte_ends_what_can_be_read(path: Path, at: int) -> None:
    file = BlockFile(OsFiles(), path, MAGIC)
    file.append([encode_block(1, b"one"), encode_block(2, b"two")])
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    assert bodies(path) == ([] if at < 23 else [(1, b"one")])
    with pytest.raises(StoreDamagedError, match="is not as it was written"):
        list(file.blocks())
    file.close()


def test_no_block_stands_where_too_few_bytes_are() -> None:
    whole = encode_block(7, b"content")
    assert all(decode_block(whole[:size], 0) is None for size in range(len(whole)))


def test_what_is_cut_off_is_overwritten(path: Path) -> None:
    file = BlockFile(OsFiles(), path, MAGIC)
    file.append([encode_block(1, b"one")])
    kept = file.size_bytes
    file.append([encode_block(2, b"two")])
    file.close()
    again = BlockFile(OsFiles(), path, MAGIC)
    assert again.file_bytes == kept + 15
    again.cut(kept)
    again.append([encode_block(3, b"3")])
    assert bodies(path) == [(1, b"one"), (3, b"3")]
    again.cut(0)
    assert not path.exists()
    again.append([encode_block(4, b"")])
    assert bodies(path) == [(4, b"")]
    again.close()


def test_a_file_is_replaced_as_a_whole_or_not_at_all(path: Path) -> None:
    file = BlockFile(OsFiles(), path, MAGIC)
    file.append([encode_block(1, b"long" * 100)])

    def failing() -> object:
        yield encode_block(2, b"short")
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        file.replace(failing())  # type: ignore[arg-type]
    assert bodies(path) == [(1, b"long" * 100)]
    file.replace([encode_block(2, b"short")])
    file.append([encode_block(3, b"")])
    assert bodies(path) == [(2, b"short"), (3, b"")]
    file.close()
