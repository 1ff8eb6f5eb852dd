"""What is written down of a backup: its files, their digests, and by what the files that they were copied from are recognised.

A line of JSON and a line with its CRC-32. Reads and writes no file.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Final

import msgspec

from orbitmq.errors import StoreDamagedError
from orbitmq.store.blocks import check_version
from orbitmq.store.files import Fingerprint

MANIFEST_FILE: Final = "backup.json"
_VERSION: Final = 1

FileSize = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What a file system can hold."""


class BackupFile(msgspec.Struct, frozen=True):
    """One file of a backup."""

    size: FileSize
    end: FileSize
    """What counts of it, in bytes: the rest reads as zeros, or comes from a run that was broken off."""
    digest: str
    """Of the bytes up to `end`; see `PieceDigest`."""
    source: Fingerprint | None = None
    """Of the file that it was copied from, whole; None where that may have changed without another fingerprint, or was not copied whole."""
    is_private: bool = False
    """Nobody but its owner may read it."""
    is_damaged: bool = False
    """A look found that the backup does not hold what was copied: the next run copies it anew."""


class BackupManifest(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    """Id of the store (`orbitmq.id`); empty where it had none yet."""
    taken_at_ms: int
    """Wall time at the beginning of the run; what was acknowledged before is in the backup."""
    end: int
    """Where the copied log ends."""
    files: dict[str, BackupFile] = {}
    """By path in the store."""
    staged: list[str] = []
    """Paths of files that this run copied; they lie in `new` until it has ended."""
    version: int = _VERSION


class _AnyVersion(msgspec.Struct):
    """What every version of a manifest has."""

    version: int


def encode_manifest(manifest: BackupManifest) -> bytes:
    line = msgspec.json.encode(manifest)
    return b"%s\n%08x\n" % (line, zlib.crc32(line))


def decode_manifest(content: bytes, name: str = MANIFEST_FILE) -> BackupManifest:
    """`name`: of the file that it is from. Raises StoreDamagedError."""
    line, _, rest = content.partition(b"\n")
    remedy = "take a new one into an empty directory; its `store` can be looked at with `orbitmq store check`"
    if rest.strip() != b"%08x" % zlib.crc32(line):
        raise StoreDamagedError(f"{name} of the backup fails its check", remedy=remedy)
    try:
        check_version(name, msgspec.json.decode(line, type=_AnyVersion).version, _VERSION)
        manifest = msgspec.json.decode(line, type=BackupManifest)
    except msgspec.MsgspecError as error:
        raise StoreDamagedError(f"{name} of the backup cannot be read: {error}", remedy=remedy) from error
    for path in (*manifest.files, *manifest.staged):
        if not _is_below(path):
            raise StoreDamagedError(
                f"{name} of the backup names {path[:200]!r}, which is no place in a store", remedy=remedy
            )
    return manifest


def _is_below(path: str) -> bool:
    """Whether a path stays in the directory that it is looked for in: a restore may have come from anywhere."""
    parts = path.split("/")
    return "\0" not in path and not {"", ".", ".."} & set(parts)


def why_not_onto(before: BackupManifest, store: str) -> str:
    """Why a store may never be copied over an earlier backup; empty where it may."""
    if before.files and before.store and before.store != store:
        return f"it is of the store {before.store}, and this one is {store or 'without an id'}"
    return ""


def what_is_lost(before: BackupManifest, log_end: int, *, is_continued: bool) -> str:
    """What an earlier backup has that the store has not, in words; empty where it has everything. `is_continued`: its log is that of the
    backup up to where that one ends, as far as the store still has it."""
    if log_end < before.end:
        return f"its log ends at {before.end}, that of the store at {log_end}: the store is older, and has lost what the backup has"
    if not is_continued:
        return (
            f"its log ends at {before.end}, and that of the store is another one before that: the store was put back to an older backup"
            " and went on, or lost its end in a power failure, or was mended there"
        )
    return ""


def is_kept(before: BackupFile | None, fingerprint: Fingerprint | None) -> bool:
    """Whether a file of the store is the one that was copied before, and holds what it held."""
    return before is not None and fingerprint is not None and before.source == fingerprint


def sure_fingerprint(
    before: Fingerprint | None, after: Fingerprint | None, began_ns: int, quiet_ns: int
) -> Fingerprint | None:
    """By what a file is recognised that was copied between two looks at it, the first one at `began_ns` (wall time); None where it may have
    changed meanwhile. Times of change are ticks of the system: two changes within one are told apart only if the first one is older."""
    return before if before is not None and before == after and before[1] + quiet_ns < began_ns else None
