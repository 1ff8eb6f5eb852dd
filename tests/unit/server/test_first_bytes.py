"""What comes first on a connection: who is let in, who is refused, and that nobody takes for ever."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import pytest
from tests.worlds.certificates import Authority
from tests.worlds.opened_port import HeardPort, NoSocket, OpenedPort

from orbitmq.clock import ManualClock
from orbitmq.limits.server import HANDSHAKES_MAX
from orbitmq.server.configuration.tls_settings import ClientCertificates, TlsMode, TlsSettings
from orbitmq.server.connections import first_bytes
from orbitmq.server.connections.first_bytes import Opening
from orbitmq.server.encryption.certificates import CertificateFiles
from orbitmq.server.encryption.tls import REFUSAL, TlsTransport

PLAIN = b"\0\0\0\x10plain frame"
BALANCER = "10.0.0.1"


class Rig(OpenedPort):
    """A port behind two balancers."""

    def __init__(self, mode: TlsMode, certificate: CertificateFiles | None, alpn: tuple[str, ...] = ()) -> None:
        super().__init__(mode, certificate, alpn, (f"{BALANCER}/32", "2001:db8::/32"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> CertificateFiles:
    pair = authority.issue("server")
    return CertificateFiles(TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key)), ManualClock())


@pytest.fixture(scope="module")
def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.file))


def speak_tls(
    rig: Rig, context: ssl.SSLContext, said: bytes, *, preamble: bytes = b"", address: str = "192.0.2.1"
) -> tuple[NoSocket, HeardPort]:
    """A client that shakes hands and says something, byte by byte."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    wire, port = rig.connect(*([preamble] if preamble else []), address=address)
    for action in (client.do_handshake, client.do_handshake, lambda: client.write(said)):
        with contextlib.suppress(ssl.SSLError):  # it wants more, or says why it ends
            action()
        for number in outgoing.read():
            wire.protocol.data_received(bytes((number,)))
        incoming.write(wire.written)
        wire.written.clear()
    return wire, port


def test_a_plain_connection_is_passed_on_and_left_alone(certificate: CertificateFiles) -> None:
    for mode in (TlsMode.DISABLED, TlsMode.PERMISSIVE):
        rig = Rig(mode, certificate)
        wire, port = rig.connect(PLAIN[:1], PLAIN[1:])
        assert port.received == PLAIN
        assert wire.protocol is port, "nothing stands between the socket and its protocol"
        assert port.over == [wire]
        assert rig.timers.set == []


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
def test_a_handshake_puts_tls_between(mode: TlsMode, certificate: CertificateFiles, trusting: ssl.SSLContext) -> None:
    rig = Rig(mode, certificate)
    wire, port = speak_tls(rig, trusting, b"hello")
    assert port.received == b"hello"
    assert isinstance(wire.protocol, TlsTransport)
    assert port.over == [wire, wire.protocol]
    assert became(rig) == {Opening.DONE: 1}
    rig.timers.fire()
    assert not wire.end, "the time of the handshake is over"


def became(rig: Rig) -> dict[Opening, int]:
    """What became of the connections so far; none is under way any more."""
    assert rig.rules.traffic.under_way == 0
    return {what: count for what, count in rig.rules.traffic.counts.items() if count}


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_reason_of_a_failure_is_counted(version: ssl.TLSVersion, authority: Authority) -> None:
    pair = authority.issue("strict")
    asking = {"trust_cert_path": str(authority.file), "client_certificates": ClientCertificates.REQUIRED}
    strict = TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key), **asking)  # type: ignore[arg-type]
    for trusted, what in ((str(authority.file), Opening.CLIENT_CERTIFICATE), (None, Opening.CLIENT_REFUSED)):
        rig = Rig(TlsMode.PERMISSIVE, CertificateFiles(strict, ManualClock()))
        context = ssl.create_default_context(cafile=trusted)
        context.maximum_version = version
        speak_tls(rig, context, b"hello")
        assert became(rig) == {what: 1}


def test_a_certificate_that_is_optional_is_judged_where_it_is_shown(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue("asking")
    asking = {"trust_cert_path": str(authority.file), "client_certificates": ClientCertificates.OPTIONAL}
    settings = TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key), **asking)  # type: ignore[arg-type]
    served = {}
    for name, own in (
        ("nobody", None),
        ("known", authority.issue("known")),
        ("stranger", Authority(tmp_path, "strangers").issue("stranger")),
    ):
        rig = Rig(TlsMode.PERMISSIVE, CertificateFiles(settings, ManualClock()))
        context = ssl.create_default_context(cafile=str(authority.file))
        if own is not None:
            context.load_cert_chain(own.cert, own.key)
        served[name] = bytes(speak_tls(rig, context, b"hello")[1].received)
    assert served == {"nobody": b"hello", "known": b"hello", "stranger": b""}


@pytest.mark.parametrize(("port", "client", "chosen"), [
    (("h2",), ["h2", "http/1.1"], "h2"), (("h2",), ["other"], None), ((), ["h2"], None), (("h2",), [], None),
])  # fmt: skip
def test_a_port_offers_its_names_and_serves_whoever_knows_none(
    port: tuple[str, ...], client: list[str], chosen: str | None, authority: Authority
) -> None:
    pair = authority.issue("named")
    files = CertificateFiles(TlsSettings(cert_path=str(pair.cert), key_path=str(pair.key)), ManualClock())
    rig = Rig(TlsMode.PERMISSIVE, files, port)
    context = ssl.create_default_context(cafile=str(authority.file))
    if client:
        context.set_alpn_protocols(client)
    wire, protocol = speak_tls(rig, context, b"hello")
    assert protocol.received == b"hello"
    assert wire.protocol.get_extra_info("ssl_object").selected_alpn_protocol() == chosen


def takes_plain(rig: Rig) -> bool:
    """Whether any byte of a plain connection reaches the port, or the connection lives."""
    for first in range(256):
        wire, port = rig.connect(bytes((first,)) + PLAIN)
        if port.received or not wire.end:
            return first != 0x16
    return False


def test_an_enforcing_port_takes_nothing_plain(certificate: CertificateFiles, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(TlsMode.ENFORCING, certificate)
    assert not takes_plain(rig)
    assert became(rig)[Opening.PLAIN_REFUSED] == 255
    assert "let the client use TLS" in caplog.text


def test_planted_a_plain_connection_at_an_enforcing_port_is_found(
    certificate: CertificateFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = first_bytes._FirstBytes
    monkeypatch.setattr(opening, "_refuse", lambda self, transport, what, why: self._pass_on(transport, PLAIN))
    assert takes_plain(Rig(TlsMode.ENFORCING, certificate))


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])
def test_tls_where_none_is_served_is_answered_and_closed(mode: TlsMode, caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(mode, None)
    wire, port = rig.connect(b"\x16\x03\x01\x02\x00")
    assert became(rig) == {Opening.TLS_REFUSED: 1}
    assert wire.written == REFUSAL
    assert wire.end == "closed"
    assert not port.received
    assert "tls.server.certPath" in caplog.text


def test_a_handshake_that_fails_is_counted_and_closed(certificate: CertificateFiles) -> None:
    rig = Rig(TlsMode.PERMISSIVE, certificate)
    wire, port = rig.connect(b"\x16" + bytes(50))
    assert wire.end == "closed"
    assert became(rig) == {Opening.HANDSHAKE_FAILED: 1}
    assert not port.received


def test_a_handshake_that_never_ends_is_cut(certificate: CertificateFiles) -> None:
    rig = Rig(TlsMode.PERMISSIVE, certificate)
    wire, _ = rig.connect(b"\x16", b"\x03", b"\x01")
    assert rig.rules.traffic.under_way == 1
    rig.timers.fire()
    assert wire.end == "cut"
    assert became(rig) == {Opening.TOO_SLOW: 1}


def test_handshakes_under_way_are_bounded(certificate: CertificateFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_bytes, "HANDSHAKES_MAX", 3)
    rig = Rig(TlsMode.PERMISSIVE, certificate)
    wires = [rig.connect(b"\x16")[0] for _ in range(4)]
    assert [wire.end for wire in wires] == ["", "", "", "closed"]
    assert rig.connect(PLAIN)[1].received == PLAIN, "plain connections do not wait for handshakes"
    wires[0].protocol.connection_lost(None)
    assert rig.rules.traffic.counts[Opening.TOO_MANY] == rig.rules.traffic.counts[Opening.LOST] == 1
    assert not rig.connect(b"\x16")[0].end
    assert HANDSHAKES_MAX >= 1_000


def test_a_slow_handshake_makes_room_for_a_new_one(
    certificate: CertificateFiles, trusting: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_bytes, "HANDSHAKES_MAX", 3)
    rig = Rig(TlsMode.PERMISSIVE, certificate)
    stalled = [rig.connect(b"\x16")[0] for _ in range(3)]
    slow = [timer for timer in rig.timers.set[:2] if timer.call is not None and timer.call() is None]
    assert len(slow) == 2, "the third has just begun"
    assert speak_tls(rig, trusting, b"hello")[1].received == b"hello"
    rig.connect(b"\x16")
    rig.connect(b"\x16")
    assert [wire.end for wire in stalled] == ["cut", "cut", ""]
    assert rig.connect(b"\x16")[0].end == "closed", "none of these is slow"
    traffic = rig.rules.traffic
    assert (traffic.counts[Opening.TOO_SLOW], traffic.under_way, rig.rules.slow) == (2, 3, {})


def test_a_lost_connection_is_told_to_its_protocol(certificate: CertificateFiles) -> None:
    for data in ((), (b"\x16",)):
        wire, port = Rig(TlsMode.PERMISSIVE, certificate).connect(*data)
        assert wire.protocol.eof_received() is True
        wire.protocol.connection_lost(None)
        assert port.is_lost


# --- behind a load balancer ---------------------------------------------------------------------------------------------

LINE = b"PROXY TCP4 203.0.113.7 10.0.0.9 56324 9876\r\n"
HEADER = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes((203, 0, 113, 7, 10, 0, 0, 9)) + b"\xdc\x04\x26\x94"


@pytest.mark.parametrize("preamble", [LINE, HEADER], ids=["line", "header"])
@pytest.mark.parametrize("address", [BALANCER, f"::ffff:{BALANCER}", "2001:db8::5"])
def test_a_balancer_names_the_client(
    address: str, preamble: bytes, certificate: CertificateFiles, trusting: ssl.SSLContext
) -> None:
    rig = Rig(TlsMode.PERMISSIVE, certificate)
    for cut in range(len(preamble)):
        wire, port = rig.connect(preamble[:cut], preamble[cut:] + PLAIN, address=address)
        assert port.client == ("203.0.113.7", 56_324)
        assert port.received == PLAIN
        assert wire.protocol is port
    _, port = speak_tls(rig, trusting, b"hello", preamble=preamble, address=address)
    assert port.client == ("203.0.113.7", 56_324)
    assert port.received == b"hello"
    assert rig.rules.traffic.under_way == 0


def test_nobody_else_does() -> None:
    _, port = Rig(TlsMode.PERMISSIVE, None).connect(LINE + PLAIN, address="10.0.0.2")
    assert port.client is None
    assert port.received == LINE + PLAIN, "to the port it is a malformed frame"


def test_a_balancer_may_also_connect_for_itself() -> None:
    wire, port = Rig(TlsMode.PERMISSIVE, None).connect(PLAIN, address=BALANCER)
    assert port.received == PLAIN
    assert not wire.end


@pytest.mark.parametrize("data", [b"PROXY nonsense\r\n", b"PROXY " + b"1" * 200])
def test_a_malformed_preamble_closes(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rig = Rig(TlsMode.PERMISSIVE, None)
    wire, port = rig.connect(data, address=BALANCER)
    assert wire.end == "closed"
    assert not port.received
    assert "PROXY line" in caplog.text


def test_half_a_preamble_is_cut_in_the_end() -> None:
    rig = Rig(TlsMode.PERMISSIVE, None)
    wire, _ = rig.connect(b"PRO", address=BALANCER)
    rig.timers.fire()
    assert wire.end == "cut"
    wire, _ = rig.connect(LINE, address=BALANCER)
    rig.timers.fire()
    assert not wire.end, "a client that says nothing yet is the port's to judge"


def test_a_preamble_does_not_open_an_enforcing_port(certificate: CertificateFiles) -> None:
    wire, port = Rig(TlsMode.ENFORCING, certificate).connect(LINE + PLAIN, address=BALANCER)
    assert wire.end == "closed"
    assert not port.received
