"""The program for spark-submit: the same words as the command."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from orbitmq.cli.shared.exit_codes import ExitCode
from orbitmq.errors import PortTakenError, StoreLockedError
from orbitmq.spark.pipelines.serving import service
from orbitmq.spark.pipelines.serving.service import ServiceEnd
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


def service_file(folder: Path) -> Path:
    file = folder / "lake.toml"
    job = 'name = "tidy"\npipeline = "compact"\narchive = "/a"\nevery = "1h"'
    file.write_text(f'[spark]\nmaster = "local[2]"\n[service]\nstate = "{folder}"\n[[job]]\n{job}\n')
    return file


def test_a_service_runs_where_spark_submit_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master in the program wins over `spark-submit --master yarn`."""
    served = Mock(return_value=ServiceEnd.IN_ORDER)
    monkeypatch.setattr(service, "serve", served)
    assert main(["serve", str(service_file(tmp_path))]) == 0
    said = served.call_args.args[0]
    assert (said.master, said.remote, len(said.parts)) == (None, None, 1)


def test_a_service_whose_directory_or_port_is_taken_ends_with_the_code_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for problem in (PortTakenError("the port is taken"), StoreLockedError("another service has the directory")):
        monkeypatch.setattr(service, "serve", Mock(side_effect=problem))
        assert main(["serve", str(service_file(tmp_path))]) == ExitCode.IN_USE


def test_a_wrong_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["archive", "--to", "/data", "--compression", "zip"]) == 2
    assert "--compression is 'zip' (it is one of zstd" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        words_of(["archive", "--nonsense"])
