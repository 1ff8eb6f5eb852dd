"""Certificates and keys: what stops a start, what a replaced file changes while running, and what it does not."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import ssl
from pathlib import Path

import msgspec
import pytest
from rich.pretty import pretty_repr
from tests.worlds.certificates import Authority, Pair

from orbitmq.clock import ManualClock, SystemClock
from orbitmq.errors import ConfigurationError
from orbitmq.server.configuration.tls_settings import ClientCertificates, TlsMode, TlsSettings
from orbitmq.server.encryption.certificates import (
    CallsCertificates,
    CertificateFiles,
    calls_context,
    certificate_of,
    server_context,
    validity_ms,
)
from orbitmq.server.encryption.made_certificate import CERTIFICATE_FILE, KEY_FILE, with_made_certificate
from orbitmq.units import DAY_MS

NOW_MS = 1_800_000_000_000


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_of(pair: Pair, **more: object) -> TlsSettings:
    own = TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key))
    return msgspec.structs.replace(own, **more)


def served_name(context: ssl.SSLContext, trusted: Path) -> str:
    """The name in the certificate that a client of `context` is shown."""
    return name_shown(context, ssl.create_default_context(cafile=str(trusted)))


def name_shown(context: ssl.SSLContext, client_context: ssl.SSLContext | None) -> str:
    """The name in the certificate of a server, which the client has to trust: ssl.SSLError where it does not."""
    assert client_context is not None
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(incoming, outgoing, server_side=True)
    client = client_context.wrap_bio(outgoing, incoming, server_hostname="localhost")
    for _ in range(4):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = client.getpeercert()
    assert shown is not None
    return str(dict(field[0] for field in shown["subject"])["commonName"])  # type: ignore[misc,arg-type]


def test_an_encrypted_key_needs_its_password(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    pair = authority.issue("locked", password="marked-secret")
    context = server_context(settings_of(pair, key_password="marked-secret"))
    assert served_name(context, authority.file) == "locked"
    for wrong in ("", "marked-wrong", "x" * 5_000):
        with pytest.raises(ConfigurationError, match="keyPassword decrypts it") as raised:
            server_context(settings_of(pair, key_password=wrong))
        assert "marked" not in str(raised.value)
    own = settings_of(pair, key_password="marked-secret", client_key_password="marked-too")
    assert "marked" not in caplog.text + repr(own) + pretty_repr(own)
    assert "cert_path" in repr(own)


def test_what_cannot_be_used_stops_the_start_and_says_which_file(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.issue("server"), authority.issue("other")
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    pipe = tmp_path / "pipe.pem"
    os.mkfifo(pipe)
    large = tmp_path / "large.pem"
    large.write_bytes(bytes(2 << 20))
    for broken, said in [
        (settings_of(Pair(tmp_path / "none.crt", pair.key)), "none.crt cannot be read"),
        (settings_of(Pair(tmp_path, pair.key)), "is not a file"),
        (settings_of(Pair(pair.cert, pipe)), "is not a file"),
        (settings_of(Pair(pair.cert, Path("/dev/zero"))), "is not a file"),
        (settings_of(Pair(pair.cert, other.key)), "KEY_VALUES_MISMATCH"),
        (settings_of(Pair(empty, pair.key)), "empty.pem"),
        (settings_of(Pair(large, pair.key)), "are allowed"),
        (settings_of(pair, key_path=""), "tls.server.keyPath"),
        (settings_of(pair, protocols="TLSv1.1,TLSv1.2"), "older versions are not spoken"),
        (settings_of(pair, ciphers="ROT13"), "tls.ciphers"),
        (settings_of(pair, client_certificates=ClientCertificates.REQUIRED), "trustCertPath"),
        (settings_of(pair, client_certificates=ClientCertificates.OPTIONAL, trust_cert_path=str(empty)), "empty.pem"),
        (TlsSettings(mode=TlsMode.ENFORCING), "needs a certificate"),
    ]:
        with pytest.raises(ConfigurationError, match=said):
            certificate_of(broken, ManualClock())


def test_versions_and_ciphers_are_what_is_asked_for(authority: Authority) -> None:
    context = server_context(
        settings_of(authority.issue("server"), protocols="TLSv1.2", ciphers="ECDHE-ECDSA-AES128-GCM-SHA256")
    )
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2
    names = {cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert names == {"ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert server_context(settings_of(authority.issue("server"))).minimum_version is ssl.TLSVersion.TLSv1_2


def test_without_a_certificate_only_plain_connections_are_taken() -> None:
    assert certificate_of(TlsSettings(), ManualClock()) is None
    assert certificate_of(TlsSettings(mode=TlsMode.DISABLED, cert_path="none", key_path="none"), ManualClock()) is None


def test_calls_verify_by_what_is_trusted(authority: Authority) -> None:
    assert calls_context(TlsSettings()) is None
    own = settings_of(authority.issue("server"), mode=TlsMode.ENFORCING)
    context = calls_context(own)
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    for careless in (msgspec.structs.replace(own, client_verifies=False), TlsSettings(calls=True, test_mode=True)):
        context = calls_context(careless)
        assert context is not None
        assert context.verify_mode is ssl.CERT_NONE
    assert calls_context(msgspec.structs.replace(own, calls=False)) is None
    with pytest.raises(ConfigurationError, match="trustCertPath"):
        calls_context(TlsSettings(calls=True))


# --- files that change while running ------------------------------------------------------------------------------------


def put(pair: Pair, cert: Path | None, key: Path | None) -> None:
    """Replace files as a renewal does; their times differ whatever the file system's clock can tell apart."""
    for source, target in ((cert, pair.cert), (key, pair.key)):
        if source is not None:
            stamp = target.stat().st_mtime_ns + 1_000_000_000
            target.write_bytes(source.read_bytes())
            os.utime(target, ns=(stamp, stamp))


def test_a_new_pair_serves_new_connections(authority: Authority) -> None:
    pair, new = authority.issue("first"), authority.issue("second")
    files = CertificateFiles(settings_of(pair), SystemClock())
    before = files.context
    files.look()
    assert files.context is before, "nothing changed"
    put(pair, new.cert, new.key)
    files.look()
    assert served_name(files.context, authority.file) == "second"
    assert served_name(before, authority.file) == "first", "connections keep the pair with which they began"


def bad_pair_keeps_the_old(
    files: CertificateFiles, pair: Pair, authority: Authority, caplog: pytest.LogCaptureFixture
) -> bool:
    """Half a renewal, then rubbish: whether the first certificate is served all the time."""
    new = authority.issue("second")
    served = []
    for cert, key in ((new.cert, None), (None, authority.file)):
        put(pair, cert, key)
        try:
            files.look()
            served.append(served_name(files.context, authority.file))
        except (ConfigurationError, ssl.SSLError):
            return False
    return served == ["first", "first"] and caplog.text.count("stays") == 2


def test_a_bad_pair_keeps_the_old_one_and_says_so(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    pair = authority.issue("first")
    files = CertificateFiles(settings_of(pair), SystemClock())
    assert bad_pair_keeps_the_old(files, pair, authority, caplog)
    files.look()
    assert caplog.text.count("stays") == 2, "said once each time"
    new = authority.issue("third")
    put(pair, new.cert, new.key)
    files.look()
    assert served_name(files.context, authority.file) == "third"


def test_a_reload_on_request_reads_at_once_and_what_it_cannot_use_is_tried_again(authority: Authority) -> None:
    pair = authority.issue("first")
    files = CertificateFiles(settings_of(pair), SystemClock())
    second = authority.issue("second")
    put(pair, second.cert, None)
    with pytest.raises(ConfigurationError):
        files.reload()
    assert served_name(files.context, authority.file) == "first"
    pair.key.write_bytes(second.key.read_bytes())
    files.look()
    assert served_name(files.context, authority.file) == "second", "the next look went on with it"
    third = authority.issue("third")
    put(pair, third.cert, third.key)
    assert str(pair.cert) in files.reload()
    assert served_name(files.context, authority.file) == "third"


def test_planted_a_reload_that_drops_the_old_key_first_is_found(
    authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop_first(files: CertificateFiles) -> None:
        files._contexts = {(): ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)}
        files._contexts = {(): server_context(files._settings)}

    monkeypatch.setattr(CertificateFiles, "_read_again", drop_first)
    pair = authority.issue("first")
    files = CertificateFiles(settings_of(pair), SystemClock())
    assert not bad_pair_keeps_the_old(files, pair, authority, caplog)


def test_a_file_that_is_gone_for_a_while_changes_nothing(authority: Authority) -> None:
    pair = authority.issue("first")
    files = CertificateFiles(settings_of(pair), SystemClock())
    content = pair.key.read_bytes()
    pair.key.unlink()
    files.look()
    assert served_name(files.context, authority.file) == "first"
    pair.key.write_bytes(content)
    files.look()
    assert served_name(files.context, authority.file) == "first"


def test_a_key_that_becomes_readable_is_read(
    authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, new = authority.issue("first"), authority.issue("second")
    files = CertificateFiles(settings_of(pair), SystemClock())
    put(pair, new.cert, new.key)
    with monkeypatch.context() as forbidding:
        # Who runs the tests may be allowed to read everything.
        def forbidden(*_: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

        forbidding.setattr("builtins.open", forbidden)
        files.look()
        files.look()
    assert served_name(files.context, authority.file) == "first"
    assert caplog.text.count("Permission denied") == 1, "said once"
    files.look()
    assert served_name(files.context, authority.file) == "second", "though the files are as they were"


@pytest.mark.parametrize(("days", "said"), [(-1, "has expired"), (40, "is not valid yet")])
def test_a_pair_that_is_not_valid_now_does_not_replace_one_that_is(
    authority: Authority, caplog: pytest.LogCaptureFixture, days: float, said: str
) -> None:
    clock = ManualClock(SystemClock().now_ms())
    begins = 41 if days > 0 else -40
    pair, new = authority.issue("first"), authority.issue("second", begins=begins, days=45 if days > 0 else days)
    files = CertificateFiles(settings_of(pair), clock)
    put(pair, new.cert, new.key)
    files.look()
    assert served_name(files.context, authority.file) == "first"
    assert said in caplog.text


def names_trusted(calls: CallsCertificates, pairs: list[Pair]) -> list[str]:
    """Those of servers, each with one of the pairs, that a new connection would be made to."""
    names = []
    for pair in pairs:
        with contextlib.suppress(ssl.SSLCertVerificationError):
            names.append(name_shown(server_context(settings_of(pair)), calls.context()))
    return names


def test_a_certificate_that_servers_share_is_renewed_server_by_server(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    own, *generations = (authority.issue(name) for name in ("own", "first", "second", "third", "fourth"))
    put(own, *generations[0])
    calls = CallsCertificates(settings_of(own, mode=TlsMode.ENFORCING))
    assert names_trusted(calls, generations) == ["first"]
    put(own, *generations[1])
    assert names_trusted(calls, generations) == ["first", "second"], "servers that have not renewed it are trusted"
    put(own, own.key, None)
    assert names_trusted(calls, generations) == ["first", "second"]
    assert caplog.text.count("cannot be used") == 1, "said once"
    put(own, *generations[2])
    calls.look()
    put(own, *generations[3])
    assert names_trusted(calls, generations) == ["third", "fourth"], "the one before, and not the last one called by"


def test_what_calls_are_told_to_trust_is_all_that_they_trust(authority: Authority) -> None:
    own, first, second = (authority.issue(name) for name in ("own", "first", "second"))
    told = settings_of(own, mode=TlsMode.ENFORCING, client_trust_cert_path=str(first.cert))
    calls = CallsCertificates(told)
    assert names_trusted(calls, [own, first, second]) == ["first"]
    put(first, second.cert, None)
    assert names_trusted(calls, [own, second]) == ["second"]


# --- its end ------------------------------------------------------------------------------------------------------------


def test_the_end_of_a_certificate_is_said_once_a_day(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    pair = authority.issue("server")
    _, ends_ms = validity_ms(pair.cert)
    clock = ManualClock()
    files = CertificateFiles(settings_of(pair), clock)
    said = []
    for days_left in (20, 3, 3, 2, -1, -1, -2):
        clock.set_wall(ends_ms - days_left * DAY_MS)
        caplog.clear()
        files.look()
        said.append(["expires" in record.message or "expired" in record.message for record in caplog.records])
    assert said == [[], [True], [], [True], [True], [], [True]]


def test_begin_and_end_are_read_from_both_forms_of_a_date(authority: Authority) -> None:
    for days in (30, 365 * 40):  # years from 2050 on are written with four digits
        pair = authority.issue("server", days=days)
        found = ssl._ssl._test_decode_cert(str(pair.cert))  # type: ignore[attr-defined]
        wanted = tuple(ssl.cert_time_to_seconds(found[end]) * 1_000 for end in ("notBefore", "notAfter"))
        assert validity_ms(pair.cert) == wanted


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_has_no_end(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file.pem"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match="no certificate"):
        validity_ms(file)


# --- test mode ----------------------------------------------------------------------------------------------------------


def test_the_certificate_of_test_mode_is_made_once(tmp_path: Path) -> None:
    wanted = TlsSettings(test_mode=True)
    made = with_made_certificate(wanted, tmp_path / "tls", NOW_MS)
    content = Path(made.cert_path).read_bytes()
    assert with_made_certificate(wanted, tmp_path / "tls", NOW_MS) == made
    assert Path(made.cert_path).read_bytes() == content
    assert (tmp_path / "tls" / KEY_FILE).stat().st_mode & 0o777 == 0o600
    with_made_certificate(wanted, tmp_path / "tls", NOW_MS + 825 * DAY_MS)
    assert Path(made.cert_path).read_bytes() != content, "one that ends is made anew"
    (tmp_path / "tls" / CERTIFICATE_FILE).write_bytes(content)
    with_made_certificate(wanted, tmp_path / "tls", NOW_MS)
    assert Path(made.cert_path).read_bytes() != content, "so is one that does not fit its key"


def test_test_mode_contradicts_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="contradict"):
        with_made_certificate(TlsSettings(test_mode=True, cert_path="a", key_path="b"), tmp_path, NOW_MS)
    for unused in (TlsSettings(), TlsSettings(test_mode=True, mode=TlsMode.DISABLED)):
        assert with_made_certificate(unused, tmp_path, NOW_MS) == unused
    assert list(tmp_path.iterdir()) == []
