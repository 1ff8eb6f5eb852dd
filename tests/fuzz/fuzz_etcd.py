"""Fuzzer of what an etcd answers. Run: `python tests/fuzz/fuzz_etcd.py --count 1000000 --seed 7`.

The first byte of an input says what the rest is: an HTTP answer to a read of a view; one that goes on, to a watch; the JSON of an answer
to a read, or to a change; a text under a key. For every input: an answer of a kind, or a refusal and no other error; the same whole and
in pieces; no view is believed that a member would not have written so, under a revision that was not given, or of an older or other etcd.
"""

from __future__ import annotations

import json
import sys
import zlib
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

from mutations import run

from orbitmq.errors import OrbitError
from orbitmq.limits.engine import ENGINE_ANSWER_BYTES_MAX
from orbitmq.replication.engine_address import parse_engine
from orbitmq.replication.view import View, first_view
from orbitmq.server.replication.engines.etcd import EtcdEngine
from orbitmq.server.replication.engines.etcd_answers import Belief, EtcdWatched, read_streamed
from orbitmq.server.replication.engines.group_engine import Held, MemberPlace
from orbitmq.server.replication.engines.http_link import HttpLink, HttpLinkAnswer
from orbitmq.server.replication.engines.kept_text import place_text, read_place, read_view, view_key, view_text

GROUP = "g"
KEY = view_key("orbitmq", GROUP)
CLUSTER, SEEN = "14841639068965178418", 5
VIEW = first_view("a", ["b"]).take_over("a", "life")
NEXT = VIEW.add_learner("c")
PLACE = MemberPlace("b", "h:1", "h:2", "ab" * 16, "1.0")

Given = TypeVar("Given")


def pieces(data: bytes) -> Iterator[bytes]:
    """The input cut at places that follow from it."""
    at, state = 0, zlib.crc32(data)
    while at < len(data):
        state = state * 69_069 + 1 & 0xFFFFFFFF
        size = 1 + (state >> 16) % (3 if state & 1 else 40)
        yield data[at : at + size]
        at += size


class Read:
    """A stream that brings the input, and ends."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts

    async def read(self, size: int) -> bytes:
        return next(self._parts, b"")

    def at_eof(self) -> bool:
        return False


class Written:
    def write(self, data: bytes) -> None: ...
    async def drain(self) -> None: ...


def now(asked: Coroutine[Any, Any, Given]) -> Given:
    """What never waits."""
    try:
        asked.send(None)
    except StopIteration as done:
        given: Given = done.value
        return given
    raise AssertionError("it waited")


def link(data: bytes, *, cut: bool) -> HttpLink:
    reader: Any = Read(pieces(data) if cut else iter([data]))
    writer: Any = Written()
    return HttpLink(reader, writer, "h")


def engine(status: int, body: bytes) -> EtcdEngine:
    """One that has read VIEW at revision 4, and is answered so."""
    belief = Belief()
    belief.cluster_id, belief.revision = CLUSTER, 4
    answers = [(200, range_of(VIEW, 4, SEEN)), (status, body)]

    async def ask(what: str, path: str, question: bytes, read: Callable[[int, bytes], Given]) -> Given:
        return read(*answers.pop(0))

    gateway: Any = SimpleNamespace(address=parse_engine("etcd://h"), belief=belief, ask=ask, is_closed=False)
    made = EtcdEngine(gateway)
    now(made.read(GROUP))
    return made


def judge(held: Held) -> str:
    assert (held.view is None) == (held.revision == 0)
    assert 0 <= held.revision < 10**19
    assert held.view is None or read_view(GROUP, view_text(GROUP, held.view)) == held.view
    assert held.revision != 4 or held.view == VIEW, "another view under a revision that was seen"
    return "read" if held.view is not None else "nothing"


def of_http(data: bytes) -> str:
    def answer(*, cut: bool) -> HttpLinkAnswer | str:
        try:
            return now(link(data, cut=cut).ask("/v3/kv/range", b"{}"))
        except OrbitError:
            return "refused"

    whole = answer(cut=False)
    assert whole == answer(cut=True), "another answer in pieces"
    if isinstance(whole, str):
        return whole
    assert len(whole.body) <= ENGINE_ANSWER_BYTES_MAX
    return of_json(whole.body, whole.status)


def of_watch(data: bytes) -> str:
    def lines(*, cut: bool) -> list[bytes]:
        found: list[bytes] = []
        stream: AsyncGenerator[bytes, None] = link(data, cut=cut).stream("/v3/watch", b"{}")

        async def follow() -> None:
            async for line in stream:
                found.append(line)

        try:
            now(follow())
        except OrbitError:
            found.append(b"refused")
        return found

    whole = lines(cut=False)
    assert whole == lines(cut=True), "other lines in pieces"
    heard = 0
    for line in whole:
        try:
            Belief().same_cluster(read_streamed(EtcdWatched, 200, line).header)
            heard += 1
        except OrbitError:
            pass
    return "heard" if heard else "refused"


def of_json(data: bytes, status: int = 200) -> str:
    try:
        return judge(now(engine(status, data).read(GROUP)))
    except OrbitError:
        return "refused"


def of_change(data: bytes) -> str:
    try:
        held = now(engine(200, data).compare_and_set(GROUP, 4, NEXT))
    except OrbitError:
        return "refused"
    return f"change {judge(held)}"


def of_text(data: bytes) -> str:
    for read in (lambda: view_text(GROUP, read_view(GROUP, data)), lambda: read_place(GROUP, "b", data)):
        try:
            found = read()
        except ValueError:
            continue
        assert not isinstance(found, bytes) or found == data, "a text that nobody wrote"
        return "text"
    return "refused text"


READERS = (of_http, of_watch, of_json, of_change, of_text)


def parse(data: bytes) -> str:
    return READERS[data[0] % len(READERS) if data else 0](data[1:])


def pair(view: View, revision: int) -> dict[str, str]:
    key, value = (b64encode(part).decode() for part in (KEY.encode(), view_text(GROUP, view)))
    return {"key": key, "create_revision": "2", "mod_revision": str(revision), "version": "3", "value": value}


def header(revision: int) -> dict[str, str]:
    return {"cluster_id": CLUSTER, "member_id": "3", "revision": str(revision), "raft_term": "2"}


def said(body: Any) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def range_of(view: View, at: int, revision: int) -> bytes:
    return said({"header": header(revision), "kvs": [pair(view, at)], "count": "1"})


def txn_of(view: View, at: int, revision: int, *, succeeded: bool) -> bytes:
    put = [{"response_put": {"header": {"revision": str(revision)}}}] if succeeded else []
    read = {"response_range": {"header": {"revision": str(revision)}, "kvs": [pair(view, at)], "count": "1"}}
    return said({"header": header(revision), "succeeded": succeeded, "responses": [*put, read]})


def corpus() -> list[bytes]:
    bodies = [range_of(VIEW, 4, 6), range_of(NEXT, 6, 6), said({"header": header(7)})]
    refusal = said({"error": "etcdserver: no leader", "code": 14, "message": "etcdserver: no leader"})
    http = [
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(b), b)
        for b in bodies
    ]
    http += [
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s" % (len(refusal), refusal),
        b"HTTP/1.1 100 Continue\r\n\r\n" + http[0],
        b"HTTP/1.0 200 OK\r\n\r\n" + bodies[0],
    ]
    created, event = (
        said({"result": {"header": header(6), "created": True}}),
        said({"result": {"header": header(7), "events": []}}),
    )
    chunk = b"%x\r\n%s\n\r\n"
    stream = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    watches = [stream + b"".join(chunk % (len(line) + 1, line) for line in (created, event, event))]
    watches.append(watches[0] + b"0\r\n\r\n")
    changes = [
        txn_of(NEXT, 6, 6, succeeded=True),
        txn_of(NEXT, 6, 8, succeeded=False),
        txn_of(VIEW, 4, 6, succeeded=False),
    ]
    texts = [view_text(GROUP, VIEW), view_text(GROUP, NEXT), place_text(GROUP, PLACE)]
    kinds = (http, watches, bodies, changes, texts)
    return [bytes([number]) + data for number, kind in enumerate(kinds) for data in kind]


TOKENS = [
    b"\r\n", b'"', b"{", b"}", b"[", b"null", b"true", b"5", b"-1", b"18446744073709551615", b'"kvs"', b'"revision":"3"',
    b"Transfer-Encoding: chunked\r\n", b"Content-Length: 0\r\n", b"0\r\n\r\n", view_text(GROUP, NEXT), b64encode(view_text(GROUP, NEXT)),
]  # fmt: skip

if __name__ == "__main__":
    sys.exit(run("etcd", corpus(), parse, TOKENS, refusals=()))
