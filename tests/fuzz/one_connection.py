"""What fuzzers of first bytes and of TLS records feed: connections of a port with a certificate, in pieces of any size."""

from __future__ import annotations

import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.worlds.opened_port import OpenedPort

from orbitmq.clock import ManualClock
from orbitmq.server.configuration.tls_settings import TlsMode, TlsSettings
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.encryption.made_certificate import with_made_certificate

NOW_MS = 1_790_000_000_000


def opened_port(*, believes: bool = True) -> OpenedPort:
    """A port with a certificate; believes: every neighbour may write a PROXY preamble."""
    with tempfile.TemporaryDirectory() as folder:
        settings = with_made_certificate(TlsSettings(test_mode=True), Path(folder), NOW_MS)
        certificate = CertificateFiles(settings, ManualClock(NOW_MS))
    return OpenedPort(TlsMode.PERMISSIVE, certificate, balancers=("0.0.0.0/0",) if believes else ())


def cut(data: bytes) -> Iterator[bytes]:
    """The data in pieces whose sizes follow from the data: many of one byte, some longer."""
    state, at = zlib.crc32(data), 0
    while at < len(data):
        state = (state * 1_103_515_245 + 12_345) & 0xFFFF_FFFF
        size = 1 if state & 0x3_0000 else 1 + (state >> 20)
        yield data[at : at + size]
        at += size
