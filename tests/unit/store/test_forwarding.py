"""Forwarding: every call of both protocols goes on as it came, and its answer comes back."""

from __future__ import annotations

import inspect
from pathlib import Path
from unittest import mock

import pytest

from orbitmq.store.files import File, Files, OsFiles
from orbitmq.store.forwarding import ForwardedFile, ForwardedFiles


def calls_of(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and not name.startswith("_")]


@pytest.mark.parametrize(
    ("protocol", "forwarded", "name"),
    [
        (protocol, forwarded, name)
        for protocol, forwarded in ((Files, ForwardedFiles), (File, ForwardedFile))
        for name in calls_of(protocol)
        if name != "write_atomic"
    ],
)
def test_a_call_goes_on(protocol: type, forwarded: type, name: str) -> None:
    inner = mock.create_autospec(protocol, instance=True)
    parameters = list(inspect.signature(getattr(protocol, name)).parameters.values())[1:]
    by_place = [mock.sentinel.given for one in parameters if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    by_name = {
        one.name: getattr(mock.sentinel, one.name) for one in parameters if one.kind is inspect.Parameter.KEYWORD_ONLY
    }
    answer = getattr(forwarded(inner), name)(*by_place, **by_name)
    getattr(inner, name).assert_called_once_with(*by_place, **by_name)
    assert answer in (None, getattr(inner, name).return_value)
    assert (answer is None) is (inspect.get_annotations(getattr(protocol, name))["return"] == "None")


def test_content_is_replaced_by_the_calls_of_the_class_itself(tmp_path: Path) -> None:
    class Counting(ForwardedFiles):
        renamed = 0

        def rename(self, source: Path, target: Path) -> None:
            self.renamed += 1
            super().rename(source, target)

    files = Counting(OsFiles())
    files.write_atomic(tmp_path / "one", b"content")
    assert (tmp_path / "one").read_bytes() == b"content"
    assert files.renamed == 1
