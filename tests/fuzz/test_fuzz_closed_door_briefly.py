"""Some thousand changed requests at the closed door in every test run, and planted bugs that they must catch."""

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


def test_nothing_comes_through_that_is_not_signed_and_allowed() -> None:
    done = run("fuzz_closed_door.py", "--count", "6000", "--seed", "20")
    assert done.returncode == 0, done.stderr
    for outcome in ("denied", "let through", "no frame"):
        assert re.search(rf"{outcome} [1-9]", done.stdout), done.stdout


PLANTED = {
    "the body is not signed": """
from orbitmq.access import authentication
sound = authentication.SigningKey.signature
right = {}
def planted(self, text, body):
    return right.setdefault(text, sound(self, text, body))
authentication.SigningKey.signature = planted
""",
    "who called last on a connection is believed": """
from orbitmq.access import users_gate
sound = users_gate.Authentication.caller
def planted(self, command):
    found = sound(self, command)
    last = getattr(self, "last", found)
    self.last = last if isinstance(found, users_gate.Unproven) else found
    return self.last
users_gate.Authentication.caller = planted
""",
    "only the beginning of a signature is compared": """
from orbitmq.access import authentication
authentication.compare_digest = lambda right, given: right[:8] == given[:8]
""",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_caught(bug: str) -> None:
    loop = """
import sys
import fuzz_closed_door as fuzzer
sys.argv = ["planted", "--count", "20000", "--seed", "20"]
fuzzer.run("planted", fuzzer.corpus(), fuzzer.parse, fuzzer.TOKENS, refusals=())
"""
    done = run("-c", f"import sys; sys.path[:0] = ['.', '../..']\n{PLANTED[bug]}{loop}")
    assert done.returncode != 0, done.stdout
    assert "broke the parser" in done.stderr, done.stderr
