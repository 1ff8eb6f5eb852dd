"""Some hundred inputs of the fuzzers of first bytes and TLS records in every test run; `make fuzz` runs a million."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INPUTS = ("--count", "500", "--seed", "20240229")
LIMIT_S = 180

PLANTED = {
    "fuzz_first_bytes": """
import orbitmq.server.connections.first_bytes as first_bytes
from orbitmq.server.connections.proxy_protocol import Preamble, read_preamble
first_bytes.read_preamble = lambda data: read_preamble(data) or Preamble(0, None)
""",
    "fuzz_tls_records": """
from orbitmq.server.encryption.tls import TlsSession
sound = TlsSession.receive
TlsSession.receive = lambda self, data: sound(self, data) + (b"?" if self.failure is not None else b"")
""",
}
"""Half a preamble counts as none; a record that cannot be decrypted gives a byte."""


@pytest.mark.parametrize("fuzzer", PLANTED)
def test_fuzzer(fuzzer: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name(f"{fuzzer}.py")), *INPUTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "500 inputs" in done.stdout


@pytest.mark.parametrize("fuzzer", PLANTED)
def test_the_fuzzers_catch_planted_bugs(fuzzer: str) -> None:
    program = (
        PLANTED[fuzzer]
        + f"import {fuzzer} as fuzzer\nfuzzer.run('planted', fuzzer.corpus(), fuzzer.parse, refusals=())\n"
    )
    command = [sys.executable, "-c", program, *INPUTS]
    done = subprocess.run(
        command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode != 0
    assert "broke the parser" in done.stderr
