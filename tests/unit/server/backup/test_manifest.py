"""The manifest of a backup, and what is decided by it."""

from __future__ import annotations

import pytest

from orbitmq.errors import StoreDamagedError
from orbitmq.server.backup.manifest import (
    BackupFile,
    BackupManifest,
    decode_manifest,
    encode_manifest,
    is_kept,
    sure_fingerprint,
    what_is_lost,
    why_not_onto,
)

FILE = BackupFile(100, 50, "ab", (1, 2_000_000_001, 100), True)
MANIFEST = BackupManifest(store="s", taken_at_ms=1, end=1000, files={"config/a.json": FILE}, staged=["config/a.json"])


def test_it_comes_back_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize("content", [b"", b"{}\n", encode_manifest(MANIFEST)[:-20], b"{}\n44e9c0b0\n"])
def test_what_is_torn_or_no_manifest_is_refused(content: bytes) -> None:
    with pytest.raises(StoreDamagedError, match="of the backup"):
        decode_manifest(content)


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "config/../../outside", "", "config//a", "a\0b"])
def test_one_that_names_places_outside_of_a_store_is_refused(path: str) -> None:
    for manifest in (
        BackupManifest(store="s", taken_at_ms=0, end=0, files={path: BackupFile(0, 0, "")}),
        BackupManifest(store="s", taken_at_ms=0, end=0, staged=[path]),
    ):
        with pytest.raises(StoreDamagedError, match="no place in a store"):
            decode_manifest(encode_manifest(manifest))


@pytest.mark.parametrize("size", [-1, 2**63])
def test_one_with_sizes_that_no_file_has_is_refused(size: int) -> None:
    for file in (BackupFile(size, 0, ""), BackupFile(0, size, "")):
        with pytest.raises(StoreDamagedError, match="cannot be read"):
            decode_manifest(encode_manifest(BackupManifest(store="s", taken_at_ms=0, end=0, files={"abort": file})))


def test_one_of_a_later_version_is_refused_by_name() -> None:
    later = BackupManifest(store="s", taken_at_ms=1, end=0, version=2)
    with pytest.raises(StoreDamagedError, match="a later version of orbitmq"):
        decode_manifest(encode_manifest(later))


@pytest.mark.parametrize(
    ("store", "why"), [("s", ""), ("t", "it is of the store s, and this one is t"), ("", "without an id")]
)
def test_another_store_goes_elsewhere(store: str, why: str) -> None:
    found = why_not_onto(MANIFEST, store)
    assert why in found
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("end", "is_continued", "lost"),
    [
        (1000, True, ""),
        (2000, True, ""),
        (999, True, "is older"),
        (2000, False, "put back"),
    ],
)
def test_what_only_the_backup_has_is_told(end: int, is_continued: bool, lost: str) -> None:
    found = what_is_lost(MANIFEST, end, is_continued=is_continued)
    assert lost in found
    assert bool(found) == bool(lost)


def test_a_store_that_had_no_id_yet_may_have_one() -> None:
    assert why_not_onto(BackupManifest(store="", taken_at_ms=0, end=0, files={"abort": FILE}), "t") == ""


def test_before_the_first_run_any_store_may_come() -> None:
    assert why_not_onto(BackupManifest(store="", taken_at_ms=0, end=0), "t") == ""


def test_a_file_is_kept_by_its_fingerprint() -> None:
    assert is_kept(FILE, FILE.source)
    assert not is_kept(FILE, (1, 2_000_000_002, 100))
    assert not is_kept(FILE, None)
    assert not is_kept(None, FILE.source)
    assert not is_kept(BackupFile(100, 50, "ab"), (1, 2, 100)), "what may have changed unnoticed is copied again"


@pytest.mark.parametrize(
    ("before", "after", "began_ns", "is_sure"),
    [
        ((1, 1_000, 5), (1, 1_000, 5), 5_001, True),
        ((1, 1_000, 5), (1, 1_001, 5), 5_001, False),
        ((1, 1_000, 5), (1, 1_000, 5), 4_000, False),
        ((1, 9_000, 5), (1, 9_000, 5), 5_001, False),
        (None, None, 5_001, False),
    ],
)
def test_a_file_that_may_have_changed_unnoticed_has_no_fingerprint(
    before: tuple[int, int, int] | None, after: tuple[int, int, int] | None, began_ns: int, is_sure: bool
) -> None:
    assert sure_fingerprint(before, after, began_ns, 3_000) == (before if is_sure else None)
