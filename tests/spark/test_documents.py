"""What the documents show of Spark is run: every block marked ```pyspark, in the order of its page, in the session of these tests.

`localhost:9876` means the tests' own server, `/data/store` a store that a Java broker wrote, and `/data` a folder of the test.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit" / "docs"))

from doc_pages import NAMED_ADDRESS, blocks, name, pages_with

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORE = "/data/store"
PAGES = pages_with("pyspark")


def test_there_are_such_pages() -> None:
    assert {"docs/howto/spark.md", "docs/howto/read-a-store-with-spark.md"} <= {name(page) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_snippets_run(
    page: Path,
    spark: SparkSession,
    name_server: str,
    golden_store: Callable[[str], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    for block in blocks(page):
        if block.language == "pyspark":
            text = block.text.replace(NAMED_ADDRESS, name_server)
            if STORE in text:
                text = text.replace(STORE, str(golden_store("plain-clean").root))
            text = text.replace("/data/", f"{tmp_path}/")
            exec(compile("\n" * (block.line - 1) + text, str(page), "exec"), names)
