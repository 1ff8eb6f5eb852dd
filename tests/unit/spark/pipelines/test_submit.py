"""The program for spark-submit: the same words as the command."""

from __future__ import annotations

import pytest

from orbitmq.spark.pipelines.submit import main, steps_of, words_of


def test_words_are_those_of_the_command() -> None:
    [step] = steps_of(words_of(
        ["archive", "--to", "/data", "--topic", "a", "--topic", "b", "--name-server", "ns:1", "--follow", "--every", "5s",
         "--no-fail-on-data-loss"]
    ))  # fmt: skip
    assert step.pipeline == "archive"
    assert step.arguments == {
        "to": "/data",
        "topic": ("a", "b"),
        "name_server": "ns:1",
        "follow": True,
        "every_ms": 5_000,
        "fail_on_data_loss": False,
    }


def test_a_wrong_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "--to", "/data", "--compression", "zip"]) == 2
    assert "--compression is 'zip' (it is one of zstd" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        words_of(["archive", "--nonsense"])
