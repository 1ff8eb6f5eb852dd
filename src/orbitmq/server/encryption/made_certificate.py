"""The certificate of `tls.test.mode.enable`, and of the port for gRPC where none is given: signed by itself, made once, kept in the data
directory.

Nobody vouches for it: clients that verify refuse it unless they are given its file. It is for trying TLS out, and for clients of
RocketMQ 5, which use TLS unless told otherwise and verify nobody.

Rules of this file
1. `cryptography` is imported here only, and only when a certificate has to be made.
2. The key is readable by its owner alone from its first byte on.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError
from orbitmq.server.configuration.tls_settings import TlsMode, TlsSettings
from orbitmq.server.encryption.certificates import CertificateFiles, server_context, validity_ms
from orbitmq.units import DAY_MS

CERTIFICATE_FILE: Final = "test-certificate.pem"
KEY_FILE: Final = "test-key.pem"

_VALID_DAYS: Final = 825
"""The longest that clients on Apple's systems take."""


def with_made_certificate(settings: TlsSettings, folder: Path, now_ms: int) -> TlsSettings:
    """The settings with the paths of the made certificate, where test mode asks for it; it lies in `folder`.

    A certificate that ends within a day or does not fit its key is made anew. Raises ConfigurationError where files of the user are
    given as well, and OSError.
    """
    if not settings.test_mode or settings.mode is TlsMode.DISABLED:
        return settings
    if settings.cert_path or settings.key_path:
        raise ConfigurationError(
            "tls.test.mode.enable = true and tls.server.certPath contradict each other",
            remedy="remove tls.test.mode.enable to use the certificate that is given, or remove that",
        )
    made = msgspec.structs.replace(
        settings, cert_path=str(folder / CERTIFICATE_FILE), key_path=str(folder / KEY_FILE), key_password=""
    )
    if not _is_good(made, now_ms):
        _make(folder, now_ms)
    return made


def made_certificate(settings: TlsSettings, folder: Path, clock: Clock) -> CertificateFiles:
    """The made certificate as ports use it, whether test mode is on or not. Takes 0.1 s when it has to be made.

    Raises ConfigurationError, OSError.
    """
    made = with_made_certificate(msgspec.structs.replace(settings, test_mode=True), folder, clock.now_ms())
    return CertificateFiles(made, clock)


def _is_good(settings: TlsSettings, now_ms: int) -> bool:
    if not Path(settings.cert_path).exists():
        return False
    try:
        server_context(msgspec.structs.replace(settings, client_certificates=TlsSettings().client_certificates))
        return validity_ms(Path(settings.cert_path))[1] > now_ms + DAY_MS
    except ConfigurationError:
        return False


def _make(folder: Path, now_ms: int) -> None:
    """An EC key, which makes handshakes ten times cheaper than RSA, and a certificate for this machine under its local names."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "orbitmq test mode")])
    local = [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(ip)) for ip in ("127.0.0.1", "::1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(local), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8, plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    _write(folder / KEY_FILE, key.private_bytes(pem, pkcs8, plain))
    _write(folder / CERTIFICATE_FILE, certificate.public_bytes(pem))


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
