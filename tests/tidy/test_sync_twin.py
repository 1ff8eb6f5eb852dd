"""The synchronous client is what its generator writes, and the generator refuses what it cannot mirror."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "orbitmq"
sys.path.insert(0, str(ROOT / "scripts"))

if not Path(sys.executable).with_name("ruff").exists():
    pytest.skip("ruff is not installed; it comes with the dev extra", allow_module_level=True)

import generate_sync  # noqa: E402
import sync_sources  # noqa: E402

HEAD = '''"""A small client."""
from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Self, overload

'''
CLIENT = '''
Handler = Callable[[Message], Awaitable[None]]
Watcher = Callable[[str, Message], Awaitable[None]]
_NEVER = 2**63 - 1


class Message:
    """One message."""

    async def answer(self) -> bool:
        """Answer it."""
        return True


class Client:
    """A client, used with `async with`."""

    def __init__(self) -> None:
        self._x = 1

    async def start(self) -> None:
        """Start."""

    async def close(self) -> None:
        """Close."""

    def stop(self) -> None:
        """Stop."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: BaseException | None) -> None:
        return None

    %s


def connect(name_servers: str) -> Client:
    """A client."""
    return Client()
'''


def package(folder: Path, method: str, more: str = "") -> Path:
    """A package with one module of asyncio source that has `method` in its class Client."""
    root = folder / "orbitmq"
    (root / "client" / "_async").mkdir(parents=True)
    (root / "client" / "_sync").mkdir()
    (root / "__init__.py").write_text("from orbitmq.client import Client, connect\n", encoding="ascii")
    homes = {"orbitmq.client._async.client": "Client Message connect"}
    (root / "client" / "__init__.py").write_text(f"_NAMES = {homes!r}\n", encoding="ascii")
    text = HEAD + more + CLIENT % method.strip().replace("\n", "\n    ")
    (root / "client" / "_async" / "client.py").write_text(text, encoding="ascii")
    return root


@pytest.fixture(autouse=True)
def small_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables speak of the real classes; small packages have none of them."""
    for name in ("INTERNAL", "ATTRIBUTES", "WRITTEN"):
        monkeypatch.setattr(generate_sync, name, {})
    monkeypatch.setattr(generate_sync, "KEPT", set())


def written(root: Path) -> str:
    return generate_sync.generate(root)[root / "client" / "_sync" / "client.py"]


# --- the checked-in twin ----------------------------------------------------------------------------------------------


class TestTheRealClient:
    """With the tables as they are."""

    @pytest.fixture(autouse=True)
    def real_tables(self, small_tables: None, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("INTERNAL", "ATTRIBUTES", "WRITTEN", "KEPT"):
            monkeypatch.setattr(generate_sync, name, getattr(sync_sources, name))

    def test_the_synchronous_client_is_fresh(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert generate_sync.main(["--check"]) == 0, capsys.readouterr().err

    def test_the_result_does_not_depend_on_the_run(self) -> None:
        assert generate_sync.generate(PACKAGE) == generate_sync.generate(PACKAGE)

    @pytest.mark.parametrize(
        ("module", "old", "new"),
        [
            ("_async/sending/producer.py", "body: bytes,\n", "body: bytes | bytearray,\n"),
            ("_async/consuming/consumer.py", "Deliver nothing more", "Deliver no more"),
            ("_sync/client.py", "self._loop.close(", "self._loop.run("),
        ],
    )
    def test_a_planted_difference_is_noticed(
        self, tmp_path: Path, module: str, old: str, new: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        root = self.copy(tmp_path)
        assert generate_sync.main(["--check"], root) == 0
        path = root / "client" / module
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        assert generate_sync.main(["--check"], root) == 1
        assert path.name in capsys.readouterr().err
        assert generate_sync.main([], root) == 0
        assert generate_sync.main(["--check"], root) == 0

    def test_a_file_of_an_earlier_run_is_noticed_and_removed(self, tmp_path: Path) -> None:
        root = self.copy(tmp_path)
        stray = root / "client" / "_sync" / "gone.py"
        stray.write_text((root / "client" / "_sync" / "client.py").read_text(encoding="utf-8"), encoding="utf-8")
        assert generate_sync.main(["--check"], root) == 1
        assert generate_sync.main([], root) == 0
        assert not stray.exists()
        assert (root / "client" / "_sync" / "loop_thread.py").exists()

    def copy(self, tmp_path: Path) -> Path:
        root = tmp_path / "orbitmq"
        shutil.copytree(PACKAGE / "client", root / "client", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("__init__.py", "sync.py"):
            shutil.copy(PACKAGE / name, root / name)
        assert generate_sync.main([], root) == 0
        return root


# --- what is translated -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (
            "async def send(self, body: bytes, *, key: str | None = None) -> int:\n    '''To await it.'''\n    return 1",
            [
                "def send(self, body: bytes, *, key: str | None = None) -> int:",
                "self._loop.run(self._twin.send(body, key=key))",
            ],
        ),
        (
            "async def get(self) -> Message | None:\n    '''Get.'''\n    return None",
            [
                "found = self._loop.run(self._twin.get())",
                "return None if found is None else Message(found, self._loop)",
            ],
        ),
        (
            "async def all(self) -> dict[str, list[Message]]:\n    '''All.'''\n    return {}",
            ["{key: [Message(each, self._loop) for each in each] for key, each in found.items()}"],
        ),
        (
            "async def tail(self) -> AsyncIterator[Message]:\n    '''Tail.'''\n    yield Message()",
            ["def tail(self) -> Iterator[Message]:", "for item in self._loop.iterate(self._twin.tail()):"],
        ),
        (
            "async def give(self, messages: Iterable[Message]) -> None:\n    '''Give.'''",
            ["self._twin.give([each._twin for each in messages])"],
        ),
        (
            "async def run(self, handler: Handler, *, concurrency: int = 2) -> None:\n    '''Run.'''",
            [
                "handler: Callable[[Message], None]",
                "on_interrupt=self._twin.stop",
                "lambda item: Message(item, self._loop)",
            ],
        ),
        (
            "def watch(self, watcher: Watcher | None = None) -> None:\n    '''Watch.'''",
            [
                "watcher: Callable[[str, Message], None] | None = None",
                "listening(lambda item0, item1: watcher(item0, Message(item1, self._loop)))",
            ],
        ),
        (
            "async def until(self, end: int = _NEVER) -> None:\n    '''Until.'''",
            ["end: int = 2**63 - 1"],
        ),
        (
            "@property\ndef size(self) -> int:\n    '''Size.'''\n    return 1",
            ["@property", "self._loop.do(lambda: self._twin.size)"],
        ),
        (
            "@overload\nasync def f(self, x: int) -> int: ...\n"
            "@overload\nasync def f(self, x: str) -> str: ...\n"
            "async def f(self, x: int | str) -> int | str:\n    '''F.'''\n    return x",
            ["def f(self, x: int) -> int: ...", "f: Callable[..., Any] = self._twin.f", "self._loop.run(f(x))"],
        ),
    ],
)
def test_a_method_gets_its_synchronous_form(tmp_path: Path, method: str, expected: list[str]) -> None:
    text = written(package(tmp_path, method))
    for part in [
        *expected,
        "with `with`.",
        "Client(source.connect(name_servers))",
        "self._loop.close(self._twin.close())",
    ]:
        assert part in text
    assert " async " not in text
    assert "await" not in text
    compile(text, "client.py", "exec")


def test_a_base_with_waiting_methods_gets_a_twin_too(tmp_path: Path) -> None:
    more = "class Calls:\n    '''Calls.'''\n    async def call(self) -> int:\n        '''Call.'''\n        return 1\n\n"
    root = package(tmp_path, "x = 1", more)
    path = root / "client" / "_async" / "client.py"
    path.write_text(path.read_text(encoding="ascii").replace("class Client:", "class Client(Calls):"), encoding="ascii")
    text = written(root)
    assert "class Calls:" in text
    assert "class Client(Calls):" in text


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("async def send(self, body) -> int:\n    '''Send.'''\n    return 1", "no annotation"),
        ("async def send(self) -> int:\n    return 1", "no docstring"),
        ("async def send(self):\n    '''Send.'''", "what it returns"),
        ("def send(self) -> Awaitable[int]:\n    '''Send.'''", "no synchronous form"),
        ("async def send(self, x: 'int') -> int:\n    '''Send.'''\n    return 1", "is text"),
        ("async def send(self) -> set[Message]:\n    '''Send.'''\n    return set()", "that has a twin"),
        ("async def send(self) -> Batch:\n    '''Send.'''", "Batch waits"),
        ("async def send(self) -> Hidden:\n    '''Send.'''", "Hidden waits"),
        (
            "async def send(self, test: Callable[[Message], bool]) -> int:\n    '''Send.'''\n    return 1",
            "that has a twin",
        ),
        ("async def send(self) -> Self:\n    '''Send.'''\n    return self", "returns Self"),
        ("@staticmethod\nasync def send() -> int:\n    '''Send.'''\n    return 1", "decorated"),
        ("async def __acall__(self) -> int:\n    return 1", "no synchronous form"),
        ("async def run(self, a: Handler, b: Handler, concurrency: int) -> None:\n    '''Run.'''", "2 handlers"),
    ],
)
def test_what_cannot_be_mirrored_is_an_error_that_names_it(
    tmp_path: Path, method: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = (
        "class Batch(NamedTuple):\n    messages: list[Message]\n\n"
        "class Hidden:\n    '''Not exported.'''\n    async def wait(self) -> None: ...\n\n"
    )
    assert generate_sync.main([], package(tmp_path, method, more)) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert "client.py" in error or "Client." in error


def test_a_public_attribute_needs_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package(tmp_path, "x = 1")
    path = root / "client" / "_async" / "client.py"
    path.write_text(path.read_text(encoding="ascii").replace("self._x = 1", "self.group: str = ''"), encoding="ascii")
    with pytest.raises(sync_sources.CannotMirrorError, match=r"attribute Client\.group"):
        generate_sync.generate(root)
    monkeypatch.setattr(generate_sync, "ATTRIBUTES", {"Client": {"group": "str"}})
    assert "return self._twin.group" in written(root)
    stale: dict[str, Any] = {"Client": {"gone"}}
    monkeypatch.setattr(generate_sync, "INTERNAL", stale)
    with pytest.raises(sync_sources.CannotMirrorError, match="has no gone"):
        generate_sync.generate(root)
