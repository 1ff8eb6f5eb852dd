"""The settings of TLS: which connections the ports take, the files of certificates and keys, how the server's own calls speak.

Paths are empty text where nothing is given.
"""

from __future__ import annotations

import enum

import msgspec


class TlsMode(enum.Enum):
    """Which connections the ports take; RocketMQ's names."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientCertificates(enum.Enum):
    """Whether clients have to show a certificate; RocketMQ's names. One that is shown is always verified."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRED = "require"


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """TLS of every port of the process, and of its calls to other servers. Passwords are never printed."""

    mode: TlsMode = TlsMode.PERMISSIVE
    test_mode: bool = False
    """Serve with a certificate that nobody vouches for, made once and kept in the data directory."""

    config_file: str = ""
    """Further settings of TLS, already among these; kept to be shown."""

    cert_path: str = ""
    key_path: str = ""
    key_password: str = ""
    trust_cert_path: str = ""
    """Certificates by which those of clients are verified."""

    client_certificates: ClientCertificates = ClientCertificates.NONE
    protocols: str = ""
    """Versions, `,` between; empty: TLS 1.2 and all later ones."""

    ciphers: str = ""
    """Ciphers of TLS 1.2, `,` or `:` between; empty: those that OpenSSL takes for secure."""

    calls: bool | None = None
    """Whether calls to name servers and brokers use TLS; None: where the ports take nothing else."""

    client_cert_path: str = ""
    client_key_path: str = ""
    client_key_password: str = ""
    client_trust_cert_path: str = ""
    """Certificates by which other servers are verified; empty: the server's own, which a cluster then shares."""

    client_verifies: bool = True

    def __repr__(self) -> str:
        return f"TlsSettings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        """What `rich` prints; without this all fields."""
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if not name.endswith("password")]

    @property
    def calls_use_tls(self) -> bool:
        return self.mode is TlsMode.ENFORCING if self.calls is None else self.calls
