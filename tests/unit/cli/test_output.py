"""What is shown: also of names that are no UTF-8."""

from __future__ import annotations

import json
import os

import pytest

from orbitmq.cli.shared.output import print_json, print_line


def test_a_name_that_is_no_text_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    strange = os.fsdecode(b"/mnt/\xff")
    print_json({"directory": strange, "notes": [strange, 1]})
    print_line({strange: None})
    pretty, _, line = capsys.readouterr().out.rpartition("}\n{")
    assert json.loads(pretty + "}") == {"directory": "/mnt/\\udcff", "notes": ["/mnt/\\udcff", 1]}
    assert json.loads("{" + line) == {"/mnt/\\udcff": None}
