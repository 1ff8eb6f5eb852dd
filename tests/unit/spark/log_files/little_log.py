"""A commit log written byte by byte: records, fillers, and zeros up to the size of its files."""

from __future__ import annotations

from pathlib import Path

from orbitmq.protocol.checksum import body_crc
from orbitmq.protocol.properties import encode_properties
from orbitmq.protocol.records import BLANK_BYTES_MIN, encode_blank, encode_stored

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"


class LittleLog:
    """The log in `root/commitlog`. Nothing is on disk before `write`."""

    def __init__(self, root: Path, file_bytes: int = 65_536, base: int = 0) -> None:
        self.root = root
        self.file_bytes = file_bytes
        self.base = base
        self.data = bytearray()
        self.starts: list[int] = []
        """Positions of the records in the log."""

    @property
    def end(self) -> int:
        return self.base + len(self.data)

    def add(
        self,
        body: bytes = b"hello",
        topic: str = "orders",
        *,
        properties: dict[str, str] | None = None,
        stored_ms: int = 1_700_000_000_000,
        sys_flag: int = 0,
    ) -> int:
        """Appends a record; its position."""
        encoded = encode_properties(properties or {"KEYS": f"k{len(self.starts)}"})
        size = len(self._encoded(body, topic, encoded, stored_ms, sys_flag))
        room = self.file_bytes - len(self.data) % self.file_bytes
        if size + BLANK_BYTES_MIN > room:
            self.data += encode_blank(room).ljust(room, b"\xee")
        self.starts.append(self.end)
        self.data += self._encoded(body, topic, encoded, stored_ms, sys_flag)
        return self.starts[-1]

    def _encoded(self, body: bytes, topic: str, properties: bytes, stored_ms: int, sys_flag: int) -> bytes:
        number = len(self.starts)
        return encode_stored(
            topic.encode(), 0, 0, number, self.end, sys_flag, stored_ms, HOST, stored_ms, HOST, 0, 0, body, properties,
            body_crc(body),
        )  # fmt: skip

    def record_at(self, position: int, body: bytes = b"forged") -> bytes:
        """A sound record that says it stands at `position`."""
        return encode_stored(b"forged", 0, 0, 0, position, 0, 1, HOST, 1 << 41, HOST, 0, 0, body, b"", body_crc(body))

    def paths(self) -> list[Path]:
        count = -(-len(self.data) // self.file_bytes)
        return [self.root / "commitlog" / f"{self.base + n * self.file_bytes:020d}" for n in range(count)]

    def write(self, *, empty_files: int = 0) -> Path:
        """The directory, with so many preallocated files behind the data."""
        for number, path in enumerate(self.paths()):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = bytes(self.data[number * self.file_bytes : (number + 1) * self.file_bytes])
            path.write_bytes(part.ljust(self.file_bytes, b"\0"))
        for number in range(empty_files):
            base = self.base + (len(self.paths()) + number) * self.file_bytes
            (self.root / "commitlog" / f"{base:020d}").write_bytes(bytes(self.file_bytes))
        return self.root
