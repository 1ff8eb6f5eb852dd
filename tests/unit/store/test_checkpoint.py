"""The checkpoint page: layout, short files, who wrote last."""

from __future__ import annotations

import struct
from pathlib import Path

from orbitmq.store.checkpoint import CHECKPOINT_BYTES, Checkpoint, CheckpointFile, read_checkpoint
from orbitmq.store.files import OsFiles

VALUE = Checkpoint(1_700_000_000_123, 1_700_000_000_456, 1_600_000_000_000, 7, 4096)


def test_fields_stand_in_file_order_and_zeros_fill_the_page() -> None:
    page = VALUE.encode()
    assert len(page) == CHECKPOINT_BYTES
    assert struct.unpack(">5q", page[:40]) == (1_700_000_000_123, 1_700_000_000_456, 1_600_000_000_000, 7, 4096)
    assert page[40:] == bytes(CHECKPOINT_BYTES - 40)
    assert Checkpoint.decode(page) == VALUE


def test_a_4x_page_without_the_later_fields_reads_them_as_zero() -> None:
    assert Checkpoint.decode(struct.pack(">3q", 1, 2, 3)) == Checkpoint(1, 2, 3)
    assert Checkpoint.decode(b"") == Checkpoint()


def test_digest_changes_with_every_field() -> None:
    digests = {VALUE.digest(), Checkpoint().digest()}
    digests |= {Checkpoint(**{name: 1}).digest() for name in Checkpoint.__struct_fields__}
    assert len(digests) == 7


def test_open_creates_a_full_page_of_zeros(tmp_path: Path) -> None:
    file = CheckpointFile.open(OsFiles(), tmp_path / "checkpoint")
    assert file.value == Checkpoint()
    file.close()
    assert (tmp_path / "checkpoint").read_bytes() == bytes(CHECKPOINT_BYTES)


def test_open_completes_a_short_page_and_keeps_its_fields(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_bytes(struct.pack(">3q", 5, 6, 7))
    file = CheckpointFile.open(OsFiles(), tmp_path / "checkpoint")
    assert file.value == Checkpoint(5, 6, 7)
    file.close()
    assert (tmp_path / "checkpoint").stat().st_size == CHECKPOINT_BYTES


def test_write_is_seen_by_the_next_open_and_by_a_reader(tmp_path: Path) -> None:
    file = CheckpointFile.open(OsFiles(), tmp_path / "checkpoint")
    file.write(VALUE)
    file.sync()
    file.close()
    again = CheckpointFile.open(OsFiles(), tmp_path / "checkpoint")
    assert again.value == VALUE
    again.close()
    assert read_checkpoint(OsFiles(), tmp_path / "checkpoint") == VALUE
    assert read_checkpoint(OsFiles(), tmp_path / "absent") is None
