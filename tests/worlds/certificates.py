"""Certificates for tests: an authority, certificates that it signs, keys in the forms that users bring."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


class Pair(NamedTuple):
    """The files of a certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates; `file` is what those who trust it are given."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        own = self._builder(self._name, self._key.public_key(), 30)
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = own.add_extension(usage, critical=True).add_extension(identifier, critical=False)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(own.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *, begins: float = -40, days: float = 30, password: str = "") -> Pair:
        """A certificate for this machine; days from now until it begins and ends, `password` encrypts its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        local = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._builder(subject, key.public_key(), days, begins)
            .add_extension(x509.SubjectAlternativeName(local), critical=False)
            .add_extension(issuer, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        locked: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            locked = serialization.BestAvailableEncryption(password.encode())
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pem = serialization.Encoding.PEM
        pair.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
        pair.cert.write_bytes(certificate.public_bytes(pem))
        return pair

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: float, begins: float = -40
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins * DAY)
            .not_valid_after(now + days * DAY)
        )
