"""Write docs/reference/api.md from the public names of `orbitmq`; with --check only compare.

Run from the repository's root: `python scripts/api_docs.py [--check]`. Exit code 1 when the file is stale, or a public name stands in no
section. Signatures are taken from the code, texts from its docstrings; nothing is written here but the order and the introductions.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from generated_pages import write_or_compare
from sync_sources import ATTRIBUTES, INTERNAL

import orbitmq
from orbitmq import testing
from orbitmq.client import admin as administration

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "api.md"

INTRODUCTION = """\
# The Python API

This file is generated from the code by `python scripts/api_docs.py`. What the client does, with examples: [client.md](../client.md).

Every name is importable from `orbitmq`. `orbitmq.sync` has the same names with blocking calls: the same parameters, without `async` and
`await`. Errors are in [errors.md](errors.md). Objects without a signature here are made by the client.
"""


class Section(NamedTuple):
    title: str
    introduction: str
    names: tuple[str, ...]


SECTIONS: Final = (
    Section("Connecting", "", ("connect", "Client", "ClientOptions", "Credentials")),
    Section(
        "Sending",
        "",
        (
            "Producer",
            "ProducerOptions",
            "Codec",
            "Message",
            "Once",
            "OnceWithin",
            "SendReceipt",
            "MessageTransaction",
            "SendStatus",
            "Repeat",
            "MessageQueue",
            "Reply",
        ),
    ),
    Section(
        "Timer messages",
        "Messages sent with `at` or `after`. `Client.timers` is a `Timers`; a receipt, a recall handle or a `TimerView` names one message.",
        (
            "Timers",
            "TimerOutcome",
            "TimerMatch",
            "TimerVerdict",
            "TimerView",
            "TimerMessage",
            "TimerCounts",
            "TimerBucket",
        ),
    ),
    Section(
        "Seeing the client",
        "How to use them: [watch-a-client.md](../howto/watch-a-client.md).",
        ("ClientHooks", "SendEnded", "Fetched", "Handled"),
    ),
    Section(
        "Recurring messages",
        "`Client.recurring` is a `Recurring`; how to use it: [send-every-morning.md](../howto/send-every-morning.md).",
        (
            "Recurring",
            "RecurringMessage",
            "RecurringChange",
            "RecurringOutcome",
            "RecurringRun",
            "Overlap",
            "CatchUp",
        ),
    ),
    Section(
        "Workers",
        "Handlers that run until the process is told to stop: [write-a-worker.md](../howto/write-a-worker.md).",
        ("handler", "TopicHandler", "serve", "Retry", "Reject"),
    ),
    Section(
        "Transactions on the brokers",
        "`Client.transactions` is a `StoredTransactions`; how to use it: [use-transactions.md](../howto/use-transactions.md).",
        ("StoredTransactions", "TransactionView", "TransactionState", "HalfMessage"),
    ),
    Section(
        "Choosing queues",
        "`ProducerOptions.selector` is one of these, or a function `(queues, ordering_key) -> queue`, which is called `Selector`.",
        ("RoundRobin", "RandomQueue", "MachineRoom", "Selector"),
    ),
    Section(
        "Consuming",
        "",
        ("Consumer", "ConsumerOptions", "ConsumeFrom", "Sql", "ReceivedMessage", "StoredMessage", "Settlement"),
    ),
    Section(
        "Popping",
        "A consumer that takes messages one by one and owns no queue.",
        ("PopConsumer", "PopOptions"),
    ),
    Section(
        "Sharing queues",
        "`ConsumerOptions.strategy` is one of these, or a function `(own id, sorted ids, sorted queues) -> own queues`.",
        (
            "AllocateAverage",
            "AllocateCircle",
            "AllocateConsistentHash",
            "AllocateFixed",
            "AllocateMachineRoom",
            "AllocateNearby",
        ),
    ),
    Section(
        "Polling and pulling",
        "",
        ("LiteConsumer", "LiteConsumerOptions", "PullConsumer", "Pulled", "PulledBytes", "PullStatus"),
    ),
    Section(
        "Tracing",
        "What `Admin.trace` answers; each is a `Trace`.",
        ("Trace", "SentTrace", "ConsumeBegun", "ConsumeEnded"),
    ),
    Section("Administration", "`Client.admin` is an `Admin`.", ("Admin",)),
)

MORE: Final = (
    ("Their parameters and results are importable from `orbitmq.client.admin`.", administration, ()),
    (
        "## Testing\n\nImportable from `orbitmq.testing`; how to use it: [test-your-timeouts.md](../howto/test-your-timeouts.md)."
        " `SyncEmbeddedBroker`, which `EmbeddedBroker.sync` makes, has the same calls without `async`.",
        testing,
        ("SyncEmbeddedBroker",),
    ),
)
"""What is public elsewhere: an introduction, the module, and which of its names stand in the introduction."""

MADE_BY_PROGRAMS: Final = {"connect", "EmbeddedBroker", "RoundRobin", "RandomQueue", "MachineRoom"}
"""Functions, and classes that programs make and that are no structs."""

WRITTEN_BY_HAND: Final = {"Selector", "Trace"}
"""Names of types, explained in the introduction of their section."""

OWN_DUNDERS: Final = ("__aiter__",)


def render() -> str:
    """The whole document. ValueError names what stands in no section."""
    listed = [name for section in SECTIONS for name in section.names]
    errors = {name for name in orbitmq.__all__ if name.endswith("Error")}
    stray = sorted(set(orbitmq.__all__) - errors - set(listed)) + sorted(set(listed) - set(orbitmq.__all__))
    if stray or len(set(listed)) != len(listed):
        raise ValueError(f"enter these in SECTIONS of {Path(__file__).name}, once: {', '.join(stray)}")
    parts = [INTRODUCTION]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n")
        if section.introduction:
            parts.append(f"{section.introduction}\n")
        parts += [_entry(name, getattr(orbitmq, name)) for name in section.names if name not in WRITTEN_BY_HAND]
    for introduction, module, left_out in MORE:
        parts.append(f"{introduction}\n")
        more = sorted(name for name in module.__all__ if name not in orbitmq.__all__ and name not in left_out)
        parts += [_entry(name, getattr(module, name)) for name in more]
    return "\n".join(parts)


# --- entries ----------------------------------------------------------------------------------------------------------


def _entry(name: str, item: Any) -> str:
    if not inspect.isclass(item):
        return f"### {name}\n\n{_code(_signature(name, item))}\n{_text(item.__doc__, _parameters(item))}"
    parts = [f"### {name}\n"]
    fields: list[tuple[str, str, Any]] = []
    if issubclass(item, Enum):
        definition = _definition(item)
        if text := ast.get_docstring(definition):
            parts.append(_text(text, ()))
        cases = _cases(item, definition)
        parts.append("\n".join(f"* `{name}.{member}`{text and f': {text}'}" for member, text in cases) + "\n")
        return "\n".join(parts)
    elif issubclass(item, msgspec.Struct):
        fields = _struct_fields(item)
        parts.append(_code(_struct(name, item, fields)))
    elif issubclass(item, tuple):
        fields = [(field, _raw_annotation(item, field), ...) for field in item._fields]
        parts.append(_code(_call(name, [f"{field}: {kind}" for field, kind, _ in fields])))
    elif name in MADE_BY_PROGRAMS:
        parts.append(_code(_signature(name, item.__init__).replace(" -> None", "")))
    known = [field for field, _, _ in fields] + [found for found, _ in _members(name, item)]
    known += [slot for home in item.__mro__ for slot in vars(home).get("__slots__", ())]
    known += _parameters(item.__init__) if name in MADE_BY_PROGRAMS else []
    if item.__doc__:
        parts.append(_text(item.__doc__, known))
    attributes = [_attribute(found, member) for found, member in _members(name, item) if isinstance(member, property)]
    attributes += [f"| `{found}` | `{kind}` | |" for found, kind in ATTRIBUTES.get(name, {}).items()]
    if attributes:
        parts.append("\n".join(["| attribute | type | |", "| --- | --- | --- |", *sorted(attributes)]) + "\n")
    for found, member in _members(name, item):
        if not isinstance(member, property):
            plain = getattr(member, "__func__", member)
            parts.append(f"#### {name}.{found}\n\n{_code(_signature(found, plain))}")
            parts.append(_text(plain.__doc__, _parameters(plain)))
    return "\n".join(parts)


def _members(name: str, item: type) -> Iterator[tuple[str, Any]]:
    """Public properties and methods with a docstring, in the order in which they are written, those of base classes last."""
    seen: set[str] = set()
    for home in item.__mro__:
        if not home.__module__.startswith("orbitmq"):
            continue
        for found, member in vars(home).items():
            if found in seen or found in INTERNAL.get(name, ()) or (found.startswith("_") and found not in OWN_DUNDERS):
                continue
            seen.add(found)
            is_method = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod)
            if isinstance(member, property) or (is_method and getattr(member, "__doc__", None)):
                yield found, member


def _definition(item: type) -> ast.ClassDef:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(item))).body
    assert isinstance(definition, ast.ClassDef)
    return definition


def _cases(item: type[Enum], definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Members of an enumeration, each with the text that follows it in the source."""
    texts: dict[str, str] = {}
    for before, node in pairwise(definition.body):
        match before, node:
            case ast.Assign(targets=[ast.Name(id=member)]), ast.Expr(value=ast.Constant(value=str(text))):
                texts[member] = " ".join(text.split())
    for each in item:
        yield each.name, texts.get(each.name, "")


def _attribute(name: str, member: property) -> str:
    kind = inspect.signature(member.fget).return_annotation if member.fget else ""
    text = " ".join((member.__doc__ or "").split())
    return f"| `{name}` | `{_escaped(str(kind))}` | {_escaped(text)} |"


# --- signatures -------------------------------------------------------------------------------------------------------


def _signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    words: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words and not any(w.startswith("*") for w in words):
            words.append("*")
        star = (
            "*"
            if parameter.kind is parameter.VAR_POSITIONAL
            else "**"
            if parameter.kind is parameter.VAR_KEYWORD
            else ""
        )
        words.append(f"{star}{parameter.name}: {parameter.annotation}" + _default(parameter.default))
    before = "async " if inspect.iscoroutinefunction(function) else ""
    returned = signature.return_annotation
    after = "" if returned is signature.empty else f" -> {returned}"
    return _call(f"{before}{'' if not before else 'def '}{name}", words) + after


def _struct(name: str, item: type[msgspec.Struct], fields: list[tuple[str, str, Any]]) -> str:
    kinds = {parameter.name: parameter.kind for parameter in inspect.signature(item).parameters.values()}
    words: list[str] = []
    for field, annotation, value in sorted(fields, key=lambda field: kinds[field[0]]):
        if kinds[field] is inspect.Parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(f"{field}: {annotation}{_default(value)}")
    return _call(name, words)


def _struct_fields(item: type[msgspec.Struct]) -> list[tuple[str, str, Any]]:
    found = []
    for field in msgspec.structs.fields(item):
        value: Any = inspect.Parameter.empty
        if field.default is not msgspec.NODEFAULT:
            value = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            value = field.default_factory()
        found.append((field.name, _raw_annotation(item, field.name), value))
    return found


def _raw_annotation(item: type, field: str) -> str:
    """As it is written; every module of ours postpones the evaluation of annotations."""
    for home in item.__mro__:
        if field in vars(home).get("__annotations__", {}):
            raw = vars(home)["__annotations__"][field]
            return str(getattr(raw, "__forward_arg__", raw))
    raise ValueError(f"{item.__name__}.{field} has no annotation")


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty or value is ...:
        return ""
    if isinstance(value, Enum):
        return f" = {type(value).__name__}.{value.name}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f" = {value:_}"
    if value is None or isinstance(value, bool | str | bytes | float | tuple | dict | frozenset | msgspec.Struct):
        return f" = {value!r}"
    return " = ..."


def _call(name: str, words: list[str]) -> str:
    line = f"{name}({', '.join(words)})"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {word},\n" for word in words) + ")"


def _code(text: str) -> str:
    return f"```py\n{text}\n```\n"


# --- texts ------------------------------------------------------------------------------------------------------------


def _parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def _text(docstring: str | None, names: Iterable[str]) -> str:
    """A docstring as Markdown: what it says of a name becomes an item of a list."""
    known, lines = set(names), []
    in_list = False
    word = rf"(?:{'|'.join(sorted(known)) or '-'})"
    begins = re.compile(rf"(?<=[.;]) (?={word}(?:, {word})*: )")
    for line in begins.sub("\n", inspect.cleandoc(docstring or "")).splitlines():
        head = re.match(r"([a-z_]+(?:, [a-z_]+)*): ", line)
        if head and set(head[1].split(", ")) <= known:
            if not in_list and lines and lines[-1]:
                lines.append("")
            in_list = True
            lines.append(f"* {', '.join(f'`{word}`' for word in head[1].split(', '))}: {line[head.end() :]}")
        elif in_list and line:
            lines.append(f"  {line.strip()}")
        else:
            in_list = False
            lines.append(line)
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(write_or_compare({TARGET: render()}, sys.argv[1:], __file__))
