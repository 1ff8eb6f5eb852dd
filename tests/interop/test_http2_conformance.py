"""Our end of HTTP/2 and gRPC's framing, judged by foreign programs on a socket: h2spec 2.2.1 and the test cases of grpc-go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from rig.toolchain import GoJudges, go_judges
from tests.worlds.http2_service import http2_service

from orbitmq.protocol.http2.hpack import HeaderDecoder

pytestmark = pytest.mark.go

LIMIT_S: Final = 180
H2SPEC_CASES: Final = 145
WAIT_S: Final = 5
"""How long h2spec waits for an answer, and so what a case costs that is not answered."""

CHANGED: Final = {
    ("http2/5.3.1", "Sends HEADERS frame that depend on itself"),
    ("http2/5.3.1", "Sends PRIORITY frame that depend on itself"),
}
"""Cases of RFC 7540 that RFC 9113 took away: priorities mean nothing any longer (5.3.2), so that none can be wrong."""

GRPC_CASES: Final = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
]


@pytest.fixture(scope="module")
def judges(available: Callable[[Callable[[], object]], None]) -> GoJudges:
    available(go_judges)
    return go_judges()


async def printed(*command: str | Path) -> str:
    """What a program prints, whatever its status is."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), LIMIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode()


async def examined(judges: GoJudges, report: Path, *sections: str) -> tuple[int, set[tuple[str, str]]]:
    """How many cases h2spec took, and those that failed, each with its section."""
    async with http2_service() as port:
        await printed(judges.h2spec, "-p", str(port), "-o", str(WAIT_S), "-j", report, *sections)
    cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {(case.get("package", ""), case.get("classname", "")) for case in cases if len(case)}
    return len(cases), failed


async def test_h2spec_finds_nothing_but_rules_that_changed(judges: GoJudges, tmp_path: Path) -> None:
    assert await examined(judges, tmp_path / "report.xml") == (H2SPEC_CASES, CHANGED)


async def test_every_case_of_grpc_go_passes(judges: GoJudges) -> None:
    async with http2_service() as port:
        output = await printed(judges.grpc, f"127.0.0.1:{port}")
    assert output.splitlines() == GRPC_CASES


async def test_a_planted_bug_is_caught(judges: GoJudges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer may have a larger table of header fields than it was allowed."""
    sound = HeaderDecoder._change_allowed

    def planted(self: HeaderDecoder, block: bytes, at: int, allowed: int) -> int:
        self._table_bytes_max = 1 << 20
        return sound(self, block, at, allowed)

    monkeypatch.setattr(HeaderDecoder, "_change_allowed", planted)
    _, failed = await examined(judges, tmp_path / "report.xml", "hpack/6.3")
    assert [section for section, _ in failed] == ["hpack/6.3"]
