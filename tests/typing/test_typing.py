"""The public API under mypy --strict, as a user's program sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = ["user_program.py", "user_program_sync.py"]


def check(program: Path, cache: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={cache}", str(program)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cache, check=False)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_users_program_is_fully_typed(program: str, cache: Path) -> None:
    result = check(HERE / program, cache)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_check_would_notice_a_wrong_use(program: str, cache: Path) -> None:
    planted = cache / "planted.py"
    planted.write_text(
        (HERE / program).read_text().replace("assert_type(receipt.queue_offset, int)", "receipt.nonsense")
    )
    result = check(planted, cache)
    assert result.returncode == 1
    assert "nonsense" in result.stdout
