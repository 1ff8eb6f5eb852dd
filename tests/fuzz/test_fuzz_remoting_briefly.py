"""A few thousand inputs of the frame and JSON fuzzers in every test run, and planted bugs that they must catch."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=100, check=False, cwd=FUZZ
    )


@pytest.mark.parametrize(("script", "count"), [("fuzz_frames.py", 5000), ("fuzz_fastjson.py", 3000)])
def test_short_run(script: str, count: int) -> None:
    done = run(script, "--count", str(count), "--seed", "20")
    assert done.returncode == 0, done.stderr
    assert f"{count} inputs" in done.stdout
    assert re.search(r"read\D* [1-9]", done.stdout), "no input was understood: the corpus is useless"


PLANTED = {
    "what follows a frame that came in pieces is lost": """
import fuzz_frames as fuzzer
from orbitmq.protocol.remoting.connection import Connection
sound = Connection._complete
def planted(self, data, commands):
    sound(self, data, commands)
    return len(data)
Connection._complete = planted
""",
    "a field of a binary header may reach beyond its block": """
import fuzz_frames as fuzzer
from orbitmq.protocol.remoting import frame
sound = frame._decode_block
def planted(header, at, end):
    return {str(at): header[at + 2 : at + 2 + header[at + 1]].decode() + chr(header[end])} if at < end else {}
frame._decode_block = planted
""",
    "references may form a circle": """
import fuzz_fastjson as fuzzer
from orbitmq.protocol.remoting import fastjson
fastjson._Resolver.measure = lambda self: None
""",
    "single quotes inside a text end it": """
import fuzz_fastjson as fuzzer
from orbitmq.protocol.remoting import fastjson
sound = fastjson._Parser.single_quoted
def planted(self):
    text = sound(self)
    return text if "'" not in text else int(text)
fastjson._Parser.single_quoted = planted
""",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_caught(bug: str) -> None:
    loop = """
import sys
sys.argv = ["planted", "--count", "3000", "--seed", "20"]
fuzzer.run("planted", fuzzer.corpus(), fuzzer.parse, fuzzer.TOKENS, refusals=())
"""
    done = run("-c", f"import sys; sys.path.insert(0, '.'){PLANTED[bug]}{loop}")
    assert done.returncode != 0, done.stdout
    assert "broke the parser" in done.stderr, done.stderr
