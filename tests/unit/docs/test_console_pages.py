"""Pages with consoles are played from top to bottom: servers, commands, programs and snippets, as a reader would.

Rules of this file
1. A page is played in an empty folder; what else it assumes stands in `BESIDE`.
2. The player itself is tested with pages that show something else than what happens.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import console_session
import pytest
from console_session import MismatchError, Session, matches, steps
from doc_pages import ROOT, Block, blocks, name, pages_with
from test_snippets import Running, run_block


def rocketmq_stores(folder: Path, golden_store: Callable[[str], Any]) -> None:
    """Two stores of a RocketMQ broker, stopped in order: one with delayed messages, one with timers."""
    for store, called in (("delay-clean", "store"), ("timer-far", "store-with-timers")):
        golden = golden_store(store)
        shutil.move(golden.root, folder / called)
        (folder / "broker.conf").write_text("\n".join(golden.expected["brokerConf"]) + "\n", encoding="utf-8")


def configuration_of_the_page(folder: Path, golden_store: Callable[[str], Any]) -> None:
    """What the page tells its reader to write to broker.conf."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed; the page makes passwords with it")
    text = (ROOT / "docs/howto/secure-a-broker.md").read_text(encoding="utf-8")
    (folder / "broker.conf").write_text(text.partition("```properties\n")[2].partition("```")[0], encoding="utf-8")
    (folder / "broker.conf").chmod(0o600)


def pyarrow_installed(folder: Path, golden_store: Callable[[str], Any]) -> None:
    pytest.importorskip("pyarrow", reason="the page installs the extra `lake`")


BESIDE = {
    "docs/howto/migrate-from-rocketmq.md": rocketmq_stores,
    "docs/howto/messages-in-a-year.md": pyarrow_installed,
    "docs/howto/secure-a-broker.md": configuration_of_the_page,
}
"""What lies in the folder of a reader before the page begins, or must be installed."""


@pytest.fixture
def session(tmp_path: Path) -> Any:
    (tmp_path / "work").mkdir()
    (tmp_path / "bin").mkdir()
    session = Session(tmp_path / "work", tmp_path / "bin")
    yield session
    session.close()


def play(page_blocks: list[Block], session: Session) -> None:
    consoles = [block for block in page_blocks if block.language == "console"]
    if any("curl " in block.text for block in consoles) and shutil.which("curl") is None:
        pytest.skip("curl is not installed; a page calls it")
    if not any(re.search(r"^\$ orbitmq (serve|nameserver) ", block.text, re.MULTILINE) for block in consoles):
        session.serve()
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in page_blocks:
            if block.language == "console":
                session.play(block)
            elif block.language == "python" and block.info:
                session.write(block)
            elif block.language == "python":
                run_block(block, Running(session.address, session.folder), names, runner)


@pytest.mark.parametrize("page", pages_with("console"), ids=name)
def test_what_a_page_shows_happens(
    page: Path, session: Session, golden_store: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(session.folder)
    monkeypatch.syspath_prepend(session.folder)
    before = set(sys.modules)
    if name(page) in BESIDE:
        BESIDE[name(page)](session.folder, golden_store)
    try:
        play(blocks(page), session)
    finally:  # a program of one page is none of the next
        for module in set(sys.modules) - before:
            if Path(getattr(sys.modules[module], "__file__", None) or "/").is_relative_to(session.folder):
                del sys.modules[module]


# --- the player -------------------------------------------------------------------------------------------------------


def page(tmp_path: Path, text: str) -> list[Block]:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    return blocks(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```console\n$ echo one\ntwo\n```\n", "the page shows"),
        ("```console\n$ echo one\none\ntwo\n```\n", "the command ended"),
        ("```console\n$ printf 'one\\ntwo\\n'\none\n```\n", "the page ends before"),
        ("```console\n$ orbitmq topic list --no-such-option\n```\n", "the page ends before"),
        ("```console\n$ orbitmq topic list --no-such-option\n...\n```\n", "exit code 2"),
        ("```python one.py\nprint(1)\n```\n\n```console\n$ python one.py\n2\n```\n", "page.md:6"),
        ("```console\n$ curl --no-such-option\nanswer\n```\n", "the page shows"),
        ("```console terminal 2\n$ sleep 100\n^C\n```\n", "exit code"),
    ],
)
def test_a_page_that_shows_something_else_is_noticed(
    text: str, complaint: str, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "serve", lambda: None)
    monkeypatch.setattr(console_session, "LOOK_AGAIN_S", 0.2)
    with pytest.raises(MismatchError, match=complaint):
        play(page(tmp_path, text), session)


def test_terminals_go_on_beside_each_other(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "serve", lambda: None)
    program = "import signal\nprint('begun')\ntry:\n    signal.pause()\nexcept KeyboardInterrupt:\n    print('ended')\n"
    text = (
        f"```python stays.py\n{program}```\n\n```console terminal 2\n$ python stays.py\nbegun\n```\n\n"
        "```console\n$ echo meanwhile\nmeanwhile\n```\n\n```console terminal 2\n^C\n$ echo again\nagain\n```\n"
    )
    play(page(tmp_path, text), session)


def test_a_look_that_comes_too_early_is_repeated(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "serve", lambda: None)
    program = "import pathlib, time\ntime.sleep(0.5)\npathlib.Path('later').write_text('here\\n')\n"
    look = f"$ curl -s file://{session.folder}/later\nhere\n"
    text = f"```python late.py\n{program}```\n\n```console terminal 2\n$ python late.py\n```\n\n```console\n{look}```\n"
    play(page(tmp_path, text), session)


def test_what_may_differ_and_what_may_not() -> None:
    assert matches("id  C00002024AD0F5EA487C6AE3B8840000", "id 7F00000100004B6F0000000000000500")
    assert matches("2026-11-21T18:08:37.283Z orders/0", "2027-01-01T00:00:00.000Z   orders/0")
    assert matches("total ... members", "total 3 of 4 members")
    assert not matches("total 3", "total 4")
    assert not matches("id 1", "id C00002024AD0F5EA487C6AE3B8840000")


def test_a_block_is_cut_at_its_commands() -> None:
    text = "more\n$ first\na\nb\n$ second\n^C\n"
    assert list(steps(text)) == [(None, ["more"]), ("first", ["a", "b"]), ("second", []), ("^C", [])]
