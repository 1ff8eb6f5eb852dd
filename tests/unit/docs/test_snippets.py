"""What the documents print is run: Python snippets against a server in this process, configuration keys against the table.

A fenced block that is marked ```python is run, in the order of its page, on one event loop; blocks of a page share their names, and
`localhost:9876` means the test's own server, whose delay levels are one second long. Other blocks are looked at for
commands of ours: every command and every option that a document names must exist.

Rules of this file
1. A document needs nothing special for its snippets to be found; a new page is a new parameter by itself.
2. A snippet must end by itself.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from doc_pages import NAMED_ADDRESS, PAGES, ROOT, Block, blocks, name, pages_with
from tests.worlds.listening_ports import ports_in_a_row

from orbitmq.cli.main import root
from orbitmq.cli.mqadmin_aliases import ALIASES
from orbitmq.clock import ManualClock
from orbitmq.server.configuration.settings import Overrides, Role, load_settings
from orbitmq.server.lifecycle import ServerProcess
from orbitmq.spark.pipelines.serving.figures import SERVICE_METRICS
from orbitmq.store.files import OsFiles
from orbitmq.store.message import NewMessage
from orbitmq.store.opening import open_store
from orbitmq.store.settings import StoreSettings
from orbitmq.store.worker import InlineWorker
from orbitmq.telemetry.catalogue import ALL as CATALOGUE

SNIPPET_LIMIT_S = 30


# --- Python -----------------------------------------------------------------------------------------------------------


class Running(NamedTuple):
    """A server on a thread of its own."""

    address: str
    data: Path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    name_port, _, _, port, _, grpc_port = ports_in_a_row(6)
    settings = load_settings(
        roles=[Role.NAMESERVER, Role.BROKER],
        flags=[
            "messageDelayLevel=" + " ".join(["1s"] * 18),
            "maxHashSlotNum=1000",
            "maxIndexNum=4000",
            f"grpcServerPort={grpc_port}",
        ],
        overrides=Overrides(data=tmp_path / "data", nameserver_port=name_port, broker_port=port),
    )
    ready, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    failures: list[BaseException] = []

    async def life() -> None:
        process = ServerProcess(settings)
        await process.start()
        loops.append(asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        await process.stop()

    def body() -> None:
        try:
            asyncio.run(life())
        except BaseException as error:
            failures.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=body, name="server of the snippets", daemon=True)
    thread.start()
    assert ready.wait(SNIPPET_LIMIT_S)
    if failures:
        raise failures[0]
    yield Running(f"127.0.0.1:{name_port}", tmp_path / "data")
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(SNIPPET_LIMIT_S)
    assert not failures, failures


def pages_with_snippets_only() -> list[Path]:
    """Pages with consoles are played as a whole, in test_console_pages.py."""
    return [page for page in pages_with("python") if page not in pages_with("console")]


@pytest.mark.parametrize("page", pages_with_snippets_only(), ids=name)
def test_python_snippets_run(page: Path, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(server.data)
    names: dict[str, Any] = {"__name__": "__main__"}
    with asyncio.Runner() as runner:
        for block in blocks(page):
            if block.language == "python":
                run_block(block, server, names, runner)


def test_the_printed_reader_of_the_mark_finds_the_confirmed_offset(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks(ROOT / "docs" / "files.md"):
        if block.language == "python":
            exec(compile(block.text, "docs/files.md", "exec"), names)
    clock = ManualClock(1_790_000_000_000)
    settings = StoreSettings(mapped_file_size_commit_log=1 << 20, message_index_enable=False)
    store = open_store(tmp_path, settings, OsFiles(), clock, notify=lambda call: call(), worker=InlineWorker())
    assert names["confirmed_offset"](tmp_path) == 0
    end = store.append(NewMessage("T", 0, b"body", b"")).end_offset
    store.commit()
    clock.advance(1_000)
    store.run_due(clock.monotonic_ns())
    assert names["confirmed_offset"](tmp_path) == end
    end = store.append(NewMessage("T", 0, b"body", b"")).end_offset
    store.close()
    assert names["confirmed_offset"](tmp_path) == end
    (tmp_path / "checkpoint").write_bytes(b"as another program leaves it".ljust(4096, b"\0"))
    assert names["confirmed_offset"](tmp_path) is None


def run_block(block: Block, server: Running, names: dict[str, Any], runner: asyncio.Runner) -> None:
    text = "\n" * (block.line - 1) + block.text.replace(NAMED_ADDRESS, server.address)
    code = compile(text, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if not code.co_flags & inspect.CO_COROUTINE:
        exec(code, names)
        return

    async def limited() -> None:
        async with asyncio.timeout(SNIPPET_LIMIT_S):
            await eval(code, names)

    runner.run(limited())


# --- commands ---------------------------------------------------------------------------------------------------------


def command_lines() -> list[tuple[str, str]]:
    """(place, line) of every line in a block without language or of a shell that calls `orbitmq`."""
    found = []
    for page in PAGES:
        for block in blocks(page):
            if block.language not in ("", "sh", "bash", "shell", "console"):
                continue
            for number, line in enumerate(block.text.splitlines(), start=block.line):
                if block.language == "console" and not line.startswith("$ "):
                    continue
                words = line.strip().removeprefix("$ ")
                if words.startswith("orbitmq ") and not words.startswith("orbitmq serves "):
                    found.append((f"{name(page)}:{number}", words))
    return found


@pytest.mark.parametrize(("place", "line"), command_lines(), ids=lambda value: str(value)[:60])
def test_commands_and_options_exist(place: str, line: str) -> None:
    line = re.sub(r"\[(.*?)\]", r"\1", line)  # optional parts count as given
    words = shlex.split(line, comments=True)[1:]
    command: click.Command = root()
    options = options_of(command)
    while words and isinstance(command, click.Group):
        if words[0].startswith("-"):
            if command.name != "orbitmq":
                break  # a group that runs a server by itself: `orbitmq broker --data DIR`
            words = words[2:]  # an option for whatever command follows: `orbitmq --context NAME topic list`
            continue
        head = words.pop(0)
        if command.name == "orbitmq" and head in ALIASES:
            return  # RocketMQ's name with RocketMQ's options
        below = command.get_command(click.Context(command), head)
        assert below is not None, f"{place}: there is no command {head!r}"
        command = below
        options = options_of(command)
    for word in words:
        if word in ("&", "|", ">", ";", "&&"):
            break
        if word.startswith("-"):
            assert word.partition("=")[0] in options | {"--help"}, f"{place}: {command.name} has no option {word}"


def options_of(command: click.Command) -> set[str]:
    return {text for parameter in command.params for text in [*parameter.opts, *parameter.secondary_opts]}


# --- lines of the log -------------------------------------------------------------------------------------------------


def said_by_the_source() -> str:
    """Every text in the source, one a line; the pieces of an f-string are texts of their own."""
    texts: list[str] = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def described_lines() -> list[str]:
    """What the tables of docs/operations.md quote in their first columns, apart from commands and names of files."""
    content = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \|", content, flags=re.MULTILINE)
    return [quoted for row in rows for quoted in re.findall(r"`([^`]+)`", row) if " " in quoted]


def test_described_lines_exist() -> None:
    """A line that the operations page explains is one that the source can still say."""
    source = said_by_the_source()
    lines = described_lines()
    assert len(lines) > 30
    gone = [
        f"{line!r}: {piece!r}"
        for line in lines
        for piece in (text.strip(" :;,") for text in re.split(r"\.\.\.|\b[A-Z]\b", line))
        if len(piece) > 3 and piece not in source
    ]
    assert gone == [], "change docs/operations.md with the line"


# --- metrics ----------------------------------------------------------------------------------------------------------


NO_METRICS = {
    "rocketmq_rpc_latency",  # RocketMQ's, left out on purpose; pages say so
    "orbitmq_warnings",  # an attribute in the reference of the API
    "orbitmq_broker", "orbitmq_async_broker", "orbitmq_settings",  # fixtures for tests
}  # fmt: skip


def unknown_metrics(text: str) -> list[str]:
    """Names in backticks that look like metrics and are none."""
    known = {metric.name for metric in (*CATALOGUE, *SERVICE_METRICS)} | NO_METRICS
    known |= {f"{name}{end}" for name in known for end in ("_bucket", "_sum", "_count", "_total")}
    named = re.findall(r"`((?:rocketmq|process|orbitmq(?!_sys_))_[a-z_]+)`", text)
    return [each for each in named if each not in known and not each.endswith("_")]


def test_metrics_that_documents_name_exist() -> None:
    assert unknown_metrics("`orbitmq_store_writable` and `rocketmq_no_such_thing`") == ["rocketmq_no_such_thing"]
    wrong = [f"{name(page)}: {each}" for page in PAGES for each in unknown_metrics(page.read_text(encoding="utf-8"))]
    assert wrong == []


# --- names ------------------------------------------------------------------------------------------------------------


def test_make_targets_exist() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    if re.search(r"^-?include make/", text, flags=re.MULTILINE):
        text += "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "make").glob("*.mk")))
    targets = set(re.findall(r"^([a-z-]+):", text, flags=re.MULTILINE))
    wrong = [
        f"{name(page)}: make {target}"
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if target not in targets
    ]
    assert wrong == []


def test_decisions_are_numbered_once_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert len({record[:4] for record in records}) == len(records), "two records with one number"
    listed = re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == records
