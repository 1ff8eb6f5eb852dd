"""Certificates and keys: read at the start, read again when their files change, and watched for their end.

Rules of this file
1. At a start a file that cannot be used stops the start. While running it changes nothing: the last good pair stays, the log says
   why, and every look tries again, for a permission or a disk may be mended without a trace in the file. Connections keep the pair
   with which they began.
2. A certificate and its key are read as a pair; one that was replaced before the other does not fit it and waits for it. So does one that
   is not valid yet, or no longer, as long as the one in use is.
3. Nothing below TLS 1.2, whatever is asked for.
4. A password is never part of a message.
"""

from __future__ import annotations

import calendar
import logging
import ssl
import stat
import time
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import ConfigurationError
from orbitmq.limits.server import CERTIFICATE_BYTES_MAX, CERTIFICATE_EXPIRY_NOTICE_MS, CERTIFICATE_LOOK_MS
from orbitmq.server.configuration.tls_settings import ClientCertificates, TlsMode, TlsSettings
from orbitmq.server.process.turn import Wakeups
from orbitmq.units import DAY_MS

_log = logging.getLogger(__name__)

WAKEUP: Final = "have certificates changed"

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_VERIFY: Final = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}

Signature = tuple[int, int, int] | None
"""What tells that a file has changed: inode, size, time of the last change. None: it cannot be looked at."""


_NO_NAMES: Final[tuple[str, ...]] = ()


class CertificateFiles:
    """The certificate of the ports, its key, and the certificates by which clients are verified, as last read."""

    def __init__(self, settings: TlsSettings, clock: Clock) -> None:
        """Reads the files. ConfigurationError when they cannot be used."""
        self._settings = settings
        self._clock = clock
        self._seen = self._signatures()
        self._noticed_day = -1
        self._trouble = ""
        self._contexts = {_NO_NAMES: server_context(settings)}
        """By the names of protocols that a port offers."""
        self.begins_ms, self.expires_ms = validity_ms(Path(settings.cert_path))

    @property
    def context(self) -> ssl.SSLContext:
        """What ports speak by that offer no names of protocols."""
        return self.context_for(_NO_NAMES)

    def context_for(self, alpn: tuple[str, ...]) -> ssl.SSLContext:
        """What a port speaks by that has offered these names. It changes when the files do; a connection keeps its own."""
        return self._contexts[alpn]

    @property
    def left_ms(self) -> int:
        """Until the certificate expires, in milliseconds; below 0 it has."""
        return self.expires_ms - self._clock.now_ms()

    def offer(self, alpn: tuple[str, ...]) -> None:
        """A port is about to open that offers these names. ConfigurationError when the files cannot be used any more."""
        if alpn not in self._contexts:
            self._contexts[alpn] = server_context(self._settings, alpn)

    def look(self) -> None:
        """Read the files again if they have changed or could not be used; say when the certificate ends soon or has ended."""
        seen = self._signatures()
        if seen != self._seen:
            self._seen = seen
            self._trouble = ""
            self._read_again()
        elif self._trouble:
            self._read_again()
        self._notice_expiry()

    def reload(self) -> str:
        """Read the files now, changed or not; answers what is in force. ConfigurationError when they cannot be used: the pair in use
        stays."""
        seen, self._seen = self._signatures(), []  # what cannot be used now is tried again with the next look
        self._read()
        self._seen = seen
        return f"new connections use the certificate in {self._settings.cert_path}"

    def _read_again(self) -> None:
        try:
            self._read()
        except ConfigurationError as error:
            if str(error) != self._trouble:
                _log.error("the certificate in use stays, what replaced it cannot be used: %s", error)
            self._trouble = str(error)
            return
        _log.info("new connections use the certificate that was put into %s", self._settings.cert_path)

    def _read(self) -> None:
        contexts = {alpn: server_context(self._settings, alpn) for alpn in self._contexts}
        begins_ms, expires_ms = validity_ms(Path(self._settings.cert_path))
        now_ms = self._clock.now_ms()
        if not begins_ms <= now_ms < expires_ms and self.begins_ms <= now_ms < self.expires_ms:
            when = "is not valid yet" if now_ms < begins_ms else "has expired"
            raise ConfigurationError(f"{self._settings.cert_path} {when}: clients would refuse it")
        self._trouble = ""
        self._contexts, self.begins_ms, self.expires_ms = contexts, begins_ms, expires_ms
        self._noticed_day = -1

    def _notice_expiry(self) -> None:
        now_ms, left_ms = self._clock.now_ms(), self.left_ms
        is_early = now_ms < self.begins_ms
        if (left_ms > CERTIFICATE_EXPIRY_NOTICE_MS and not is_early) or now_ms // DAY_MS == self._noticed_day:
            return
        self._noticed_day = now_ms // DAY_MS
        if is_early:
            _log.error("the certificate %s is not valid yet: clients refuse it", self._settings.cert_path)
        elif left_ms <= 0:
            _log.error(
                "the certificate %s has expired: clients refuse it; replace it and its key", self._settings.cert_path
            )
        else:
            _log.warning("the certificate %s expires in %d hours", self._settings.cert_path, left_ms // 3_600_000)

    def _signatures(self) -> list[Signature]:
        own = self._settings
        return [_signature(path) for path in (own.cert_path, own.key_path, own.trust_cert_path) if path]


class CertificateWatch:
    """Looks at the files of a certificate from time to time, and at those of calls: the one before is known only to who has seen it."""

    def __init__(self, certificate: CertificateFiles, calls: CallsCertificates, wakeups: Wakeups) -> None:
        self._certificate = certificate
        self._calls = calls
        self._wakeups = wakeups
        self._look()

    def _look(self) -> None:
        self._certificate.look()
        self._calls.look()
        self._timer = self._wakeups.call_later(CERTIFICATE_LOOK_MS / 1_000, WAKEUP, self._look)

    def stop(self) -> None:
        self._timer.cancel()


class CallsCertificates:
    """What calls to other servers verify and show.

    Files that have changed are read again, before a connection is made at the latest. What cannot be used changes nothing, is reported
    once, and is tried again.
    """

    def __init__(self, settings: TlsSettings) -> None:
        """ConfigurationError when the files cannot be used."""
        self._settings = settings
        self._trouble = ""
        self._seen = self._signatures()
        self._context = calls_context(settings)
        verifies = self._context is not None and self._context.verify_mode is ssl.CERT_REQUIRED
        self._own_path = settings.cert_path if verifies and not settings.client_trust_cert_path else ""
        self._own_pem = self._read_own()

    def context(self) -> ssl.SSLContext | None:
        """What a new connection speaks by; None where calls are plain."""
        self.look()
        return self._context

    @property
    def has_files(self) -> bool:
        """Calls use TLS and files of ours."""
        return self._context is not None and bool(self._signatures())

    def reload(self) -> str:
        """As that of `CertificateFiles`; OSError too."""
        seen, self._seen = self._signatures(), []
        self._read()
        self._seen = seen
        return "new connections to other servers use what is in the files"

    def look(self) -> None:
        """Read the files again if they have changed or could not be used."""
        if self._context is None:
            return
        seen = self._signatures()
        if seen != self._seen or self._trouble:
            self._seen = seen
            self._read_again()

    def _read_again(self) -> None:
        try:
            self._read()
        except (ConfigurationError, OSError) as error:
            if str(error) != self._trouble:
                _log.error("calls to other servers go on as they did, what replaced a file cannot be used: %s", error)
            self._trouble = str(error)

    def _read(self) -> None:
        """A cluster that shares one certificate renews it server by server: the one before is trusted until the next takes its place."""
        context = calls_context(self._settings, self._own_pem)
        own_pem = self._read_own()
        self._trouble = ""
        self._context, self._own_pem = context, own_pem

    def _read_own(self) -> str:
        return Path(self._own_path).read_bytes().decode("ascii", "ignore") if self._own_path else ""

    def _signatures(self) -> list[Signature]:
        own = self._settings
        paths = (own.client_trust_cert_path, own.cert_path, own.client_cert_path, own.client_key_path)
        return [_signature(path) for path in paths if path]


def server_context(settings: TlsSettings, alpn: tuple[str, ...] = ()) -> ssl.SSLContext:
    """What the ports speak by. alpn: names of protocols that they offer.

    ConfigurationError when a file, a version or a cipher cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if alpn:
        context.set_alpn_protocols(list(alpn))
    context.minimum_version, context.maximum_version = _versions(settings.protocols)
    if settings.ciphers:
        try:
            context.set_ciphers(settings.ciphers.replace(",", ":"))
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"tls.ciphers = {settings.ciphers!r} names no cipher that is known here",
                remedy="give names of OpenSSL, such as ECDHE-RSA-AES128-GCM-SHA256, a comma between",
            ) from error
    _load_pair(context, "tls.server", settings.cert_path, settings.key_path, settings.key_password)
    context.verify_mode = _VERIFY[settings.client_certificates]
    if settings.client_certificates is not ClientCertificates.NONE:
        if not settings.trust_cert_path:
            raise ConfigurationError(
                "clients are asked for certificates that nothing can verify",
                remedy="give tls.server.trustCertPath, or set tls.server.need.client.auth to none",
            )
        _load_trusted(context, "tls.server.trustCertPath", settings.trust_cert_path)
    return context


def calls_context(settings: TlsSettings, trusted_pem: str = "") -> ssl.SSLContext | None:
    """What calls to other servers speak by; None for plain connections. ConfigurationError as for `server_context`.

    Servers are known by address: a certificate counts when it is trusted, whatever name it bears. `trusted_pem` is trusted as well.
    """
    if not settings.calls_use_tls:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = _versions(settings.protocols)
    context.check_hostname = False
    trusted = settings.client_trust_cert_path or settings.cert_path
    if not settings.client_verifies or settings.test_mode:
        context.verify_mode = ssl.CERT_NONE
    elif not trusted:
        raise ConfigurationError(
            "calls use TLS, and nothing can verify the certificates of other servers",
            remedy="give tls.client.trustCertPath, or set tls.client.authServer=false",
        )
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load_trusted(context, "tls.client.trustCertPath", trusted)
        if trusted_pem:
            context.load_verify_locations(cadata=trusted_pem)
    if settings.client_cert_path:
        _load_pair(
            context, "tls.client", settings.client_cert_path, settings.client_key_path, settings.client_key_password
        )
    return context


def validity_ms(path: Path) -> tuple[int, int]:
    """When the first certificate of a PEM file begins and ends, in milliseconds since 1970. ConfigurationError where it has none."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
        begin = text.index(ssl.PEM_HEADER)
        end = text.index(ssl.PEM_FOOTER, begin) + len(ssl.PEM_FOOTER)
        return _der_validity_ms(ssl.PEM_cert_to_DER_cert(text[begin:end]))
    except (OSError, ValueError, IndexError) as error:
        raise ConfigurationError(f"{path} holds no certificate in PEM form") from error


def _der_validity_ms(der: bytes) -> tuple[int, int]:
    """X.509: a sequence of a sequence of version (where given), serial number, algorithm, issuer, validity."""
    _, certificate, _ = _der_item(der)
    _, fields, _ = _der_item(certificate)
    tag, _, rest = _der_item(fields)
    for _ in range(4 if tag == 0xA0 else 3):
        _, validity, rest = _der_item(rest)
    begins_tag, begins, rest = _der_item(validity)
    ends_tag, ends, _ = _der_item(rest)
    return _der_time_ms(begins_tag, begins), _der_time_ms(ends_tag, ends)


def _der_time_ms(tag: int, content: bytes) -> int:
    text = content.decode("ascii")
    if tag == 0x17:  # two digits of the year, 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ")) * 1_000


def _der_item(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first item, and what follows it."""
    size, begin = data[1], 2
    if size & 0x80:
        begin += size & 0x7F
        size = int.from_bytes(data[2:begin], "big")
    return data[0], data[begin : begin + size], data[begin + size :]


def _versions(protocols: str) -> tuple[ssl.TLSVersion, ssl.TLSVersion]:
    wanted = [name.strip() for name in protocols.split(",") if name.strip()]
    if any(name not in _VERSIONS for name in wanted):
        raise ConfigurationError(
            f"tls.protocols = {protocols!r} is not allowed",
            remedy="give TLSv1.2, TLSv1.3 or both, a comma between; older versions are not spoken",
        )
    if not wanted:
        return ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.MAXIMUM_SUPPORTED
    versions = [_VERSIONS[name] for name in wanted]
    return min(versions), max(versions)


def _load_pair(context: ssl.SSLContext, prefix: str, cert_path: str, key_path: str, password: str) -> None:
    if not cert_path or not key_path:
        raise ConfigurationError(f"TLS needs a certificate and its key: give {prefix}.certPath and {prefix}.keyPath")
    _check_file(f"{prefix}.certPath", cert_path)
    _check_file(f"{prefix}.keyPath", key_path)
    try:
        context.load_cert_chain(cert_path, key_path, password=lambda: password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "reason", None) or "the key cannot be decrypted or read"
        raise ConfigurationError(
            f"{prefix}.certPath = {cert_path} and {prefix}.keyPath = {key_path} cannot be used: {reason}",
            remedy=f"both are PEM files, the key is the certificate's, and {prefix}.keyPassword decrypts it; keys encrypted with old "
            "algorithms need `openssl pkcs8 -topk8 -v2 aes256`",
        ) from error


def _load_trusted(context: ssl.SSLContext, key: str, path: str) -> None:
    _check_file(key, path)
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise ConfigurationError(f"{key} = {path} holds no certificates in PEM form") from error


def _check_file(key: str, path: str) -> None:
    try:
        found = Path(path).stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigurationError(f"{key} = {path} is not a file", remedy="a pipe or a folder is no certificate")
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{key} = {path} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
    if found.st_size > CERTIFICATE_BYTES_MAX:
        raise ConfigurationError(f"{key} = {path} has {found.st_size} bytes, {CERTIFICATE_BYTES_MAX} are allowed")


def _signature(path: str) -> Signature:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def certificate_of(settings: TlsSettings, clock: Clock) -> CertificateFiles | None:
    """The certificate of the ports; None where they speak no TLS. ConfigurationError when it cannot be used, or one is demanded and not
    given."""
    if settings.mode is TlsMode.DISABLED:
        return None
    if settings.cert_path or settings.key_path:
        return CertificateFiles(settings, clock)
    if settings.mode is TlsMode.ENFORCING:
        raise ConfigurationError(
            "tls.server.mode = enforcing needs a certificate",
            remedy="give tls.server.certPath and tls.server.keyPath, or tls.test.mode.enable=true for one that nobody vouches for",
        )
    return None
