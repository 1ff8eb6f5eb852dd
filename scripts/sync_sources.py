"""What of the asyncio client has a synchronous twin: the sources, and the tables that say what is for programs.

Read by generate_sync.py. A public name of a class that stands in no table is mirrored, or it is an error; so who adds one for other
parts of the client enters it in `INTERNAL` here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "orbitmq.client"
ASYNC: Final = f"{PACKAGE}._async"
SYNC: Final = f"{PACKAGE}._sync"
MARK: Final = "Written by scripts/generate_sync.py"


class Written(NamedTuple):
    """A base class written by hand: where it is, the bodies it gives to methods, and the names it has itself."""

    module: str
    name: str
    bodies: dict[str, str]
    names: set[str]


OWNER: Final = "Client"
"""The class whose start and end are those of the thread."""

INTERNAL: Final = {
    "Client": {
        "check_timed", "clock", "consumer_closed", "consumer_started", "consumers", "heartbeat_soon", "hooks",
        "inner_producer", "introduce_to", "member_closed", "other_consumers", "member_started", "member_subscribed",
        "membership", "name_servers", "network", "producer_closed", "producers", "routes", "stable_id", "tasks", "tracer",
        "unique_ids", "waiting_replies",
    },
    "Consumer": {
        "broker_lost_us", "client", "correct_offset", "deliver", "ended", "given_up", "handler", "heartbeat", "hold",
        "locks", "members_changed", "note_progress", "offsets", "owned", "pulling", "rebalance_soon", "reply", "reset",
        "send_back", "settled", "shared_waiters_count", "started_at_ms", "statistics", "subscriptions", "tasks", "traces",
        "unsettled_bytes",
    },
    "LiteConsumer": {
        "broker_lost_us", "client", "heartbeat", "members_changed", "progress", "pulling", "queues", "reader",
        "rebalance_soon", "reset",
        "running_info", "started_at_ms", "subscriptions", "tasks",
    },
    "PopConsumer": {
        "client", "feed", "heartbeat", "members_changed", "progress", "rebalance_soon", "reset", "running_info", "started_at_ms",
        "statistics", "subscriptions", "tasks",
    },
    "Producer": {"send_prepared", "transactions"},
    "PullConsumer": {"client"},
    "ReceivedMessage": {"again", "problem", "settler"},
    "Timers": {"support"},
}  # fmt: skip
"""Public names that are for the other parts of the client, not for programs."""

ATTRIBUTES: Final = {
    "Client": {"client_id": "str", "options": "ClientOptions"},
    "Consumer": {"group": "str", "options": "ConsumerOptions"},
    "LiteConsumer": {"group": "str", "options": "LiteConsumerOptions"},
    "PopConsumer": {"group": "str", "options": "PopOptions"},
    "Producer": {"group": "str", "options": "ProducerOptions"},
    "PullConsumer": {"group": "str"},
}
"""Attributes for programs, which never change."""

KEPT: Final = {("Client", "admin"), ("Client", "timers"), ("Client", "recurring"), ("Client", "transactions")}
"""Properties whose object stays the same, so that its twin does."""

RESCUED: Final = {
    ("Consumer", "__anext__"),
    ("LiteConsumer", "__anext__"),
    ("LiteConsumer", "poll"),
    ("PopConsumer", "__anext__"),
}
"""Methods that hand out messages. When a call is interrupted in the instant after they were taken, the next call gives them."""

WRITTEN: Final = {
    "ReceivedMessage": Written(
        "orbitmq.client._sync.delivered",
        "Delivered",
        {"ack": "self._ack()", "held": "self._twin.held"},
        {"body", "queue", "queue_offset", "reconsume_times", "record", "settlement"},
    ),
    "SendReceipt": Written("orbitmq.client._sync.kept_receipt", "KeptReceipt", {}, {"__deepcopy__", "__reduce__"}),
}
"""Twins with a base written by hand."""

BY_HAND: Final = {"serve": f"{SYNC}.serving"}
"""Functions with a twin that is written by hand, and its module."""

ENDING: Final = {"close", "stop", "__aexit__"}
"""Methods that end a part of a client; harmless after the client itself has ended."""

DUNDERS: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
WAITING: Final = {
    "Awaitable", "Coroutine", "AsyncIterable", "AsyncGenerator", "AbstractAsyncContextManager", "AsyncContextManager",
    "AsyncIterator",
}  # fmt: skip
"""Types that mean waiting; they may stand only where this program translates them."""

SEQUENCES: Final = {"list", "Sequence", "Iterable", "Collection"}


class CannotMirrorError(Exception):
    """Something in the asyncio client has no synchronous form that this program knows."""


class Source:
    """One module of the asyncio client. `place` is its path below `_async`, which its twin has below `_sync`."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.place = place = path.relative_to(folder)
        self.module = ".".join([ASYNC, *place.with_suffix("").parts])
        self.tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        self.imports: dict[str, tuple[str, str]] = {}
        self.definitions: dict[str, ast.stmt] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    self.imports[alias.asname or alias.name] = (node.module, alias.name)
        for statement in self.tree.body:
            match statement:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                    self.definitions[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self.definitions[name] = statement

    def fail(self, node: ast.AST, what: str, remedy: str) -> CannotMirrorError:
        return CannotMirrorError(f"{self.path.name}:{getattr(node, 'lineno', 0)}: {what} ({remedy})")


class Sources:
    """All modules of the asyncio client, and what of them has a twin."""

    def __init__(self, root: Path) -> None:
        self.root = root
        folder = root / "client" / "_async"
        self.modules = {
            source.module: source for path in sorted(folder.rglob("*.py")) for source in [Source(path, folder)]
        }
        self.homes = _homes(root)
        self.mirrored: dict[tuple[str, str], ast.ClassDef] = {}
        self.functions: dict[tuple[str, str], ast.FunctionDef] = {}
        for name, home in self.homes.items():
            if home in self.modules:
                definition = self.modules[home].definitions.get(name)
                if isinstance(definition, ast.ClassDef) and self.waits(self.modules[home], definition):
                    self._add(self.modules[home], definition)
                elif isinstance(definition, ast.FunctionDef):
                    self.functions[home, name] = definition

    def _add(self, source: Source, definition: ast.ClassDef) -> None:
        self.mirrored[source.module, definition.name] = definition
        for base in definition.bases:
            found = self.find(source, ast.unparse(base))
            if found is not None and isinstance(found[1], ast.ClassDef) and self.waits(found[0], found[1]):
                self._add(*found)

    def find(self, source: Source, name: str) -> tuple[Source, ast.stmt] | None:
        """Where in the asyncio client a name is defined; None when it comes from elsewhere."""
        while True:
            if name in source.definitions:
                return source, source.definitions[name]
            module, name = source.imports.get(name, ("", name))
            if module not in self.modules:
                return None
            source = self.modules[module]

    def waits(self, source: Source, definition: ast.ClassDef) -> bool:
        """Whether a class, or one it inherits from, has asynchronous methods."""
        if any(isinstance(node, ast.AsyncFunctionDef) for node in definition.body):
            return True
        bases = (self.find(source, ast.unparse(base)) for base in definition.bases)
        return any(base and isinstance(base[1], ast.ClassDef) and self.waits(base[0], base[1]) for base in bases)

    def is_mirrored(self, source: Source, name: str) -> bool:
        found = self.find(source, name)
        return found is not None and (found[0].module, name) in self.mirrored


def _homes(root: Path) -> dict[str, str]:
    """The exported names of the client and their modules."""
    tree = ast.parse((root / "client" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_NAMES":
            modules = ast.literal_eval(node.value)
            return dict(sorted((name, module) for module, names in modules.items() for name in names.split()))
    raise CannotMirrorError("client/__init__.py has no table _NAMES (it says where each exported name is defined)")


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def result_of(source: Source, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr:
    if node.returns is None:
        raise source.fail(node, f"{node.name} does not say what it returns", "annotate it")
    return node.returns


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]


def attributes(definition: ast.ClassDef) -> set[str]:
    """Public attributes that the constructor sets."""
    constructor = next((node for node in definition.body if getattr(node, "name", "") == "__init__"), None)
    return {
        node.attr
        for node in ast.walk(constructor or ast.Module([], []))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
        and not node.attr.startswith("_")
    }


def as_synchronous(text: str) -> str:
    """Prose and examples about `async with` and `await` without these words."""
    text = re.sub(r"\basync (with|for|def)\b", r"\1", text)
    text = text.replace("orbitmq.connect(", "orbitmq.sync.connect(")
    return re.sub(r"\bawait ", "", text).replace("\\", "\\\\")


def formatted(text: str, path: Path) -> str:
    """As the project's formatter would leave it."""
    ruff = Path(sys.executable).with_name("ruff")
    for arguments in (["check", "--fix", "--quiet", "--select", "I,F401,RUF022"], ["format", "--quiet"]):
        done = subprocess.run(
            [ruff, *arguments, f"--stdin-filename={ROOT / 'src' / 'orbitmq' / path.name}", "-"],
            input=text, capture_output=True, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
        if done.returncode:
            raise CannotMirrorError(
                f"ruff does not accept what was written for {path.name}:\n{done.stderr}{done.stdout}"
            )
        text = done.stdout
    return text
