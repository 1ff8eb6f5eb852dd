"""Importing the client stays cheap and pulls in nothing that a small program does not need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("typer", "rich", "lz4", "zstandard", "uvloop", "orbitmq.store", "orbitmq.broker", "orbitmq.server")


@pytest.mark.parametrize("statement", ["import orbitmq", "import orbitmq.client", "from orbitmq import connect"])
def test_no_heavy_module_is_imported(statement: str) -> None:
    program = f"import sys\n{statement}\nprint([name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    import orbitmq
    import orbitmq.client

    for module in (orbitmq, orbitmq.client):
        for name in module.__all__:
            assert getattr(module, name) is not None
        assert set(module.__all__) <= set(dir(module))
        with pytest.raises(AttributeError):
            _ = module.no_such_name
