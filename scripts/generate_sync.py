"""Write the synchronous client from the asyncio client.

    python scripts/generate_sync.py            writes src/orbitmq/client/_sync/*.py and src/orbitmq/sync.py
    python scripts/generate_sync.py --check    fails when they are not what would be written

Every class that `orbitmq.client` exports from `_async` and that waits for something gets a twin of the same name, with the same methods,
parameters, annotations and docstrings. The twin holds the asyncio object and hands each call to the client's thread
(`_sync/loop_thread.py`): `async def` becomes `def`, `async with` `with`, `async for` `for`, an asynchronous handler a plain function.

Rules of this file
1. Nothing is skipped. A public name has a twin or stands in `INTERNAL`; what cannot be mirrored is an error that says where.
2. The sources are read, not imported, and the result depends on them alone.
3. Protocol logic has no place here, and none in what is written.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sync_sources import (
    ASYNC,
    ATTRIBUTES,
    BY_HAND,
    DUNDERS,
    ENDING,
    INTERNAL,
    KEPT,
    MARK,
    OWNER,
    PACKAGE,
    RESCUED,
    SEQUENCES,
    SYNC,
    WAITING,
    WRITTEN,
    CannotMirrorError,
    Source,
    Sources,
    all_arguments,
    as_synchronous,
    attributes,
    expression,
    formatted,
    result_of,
)

ROOT: Final = Path(__file__).resolve().parents[1]


class Twin:
    """One module on its way: its lines, and what they need to import."""

    def __init__(self, sources: Sources, source: Source) -> None:
        self.sources = sources
        self.source = source
        self.imports: dict[str, set[str]] = {}
        self.lines: list[str] = []

    # --- types

    def need(self, source: Source, name: str) -> str:
        """Make a name of a source available; the name."""
        found = self.sources.find(source, name)
        if found is not None and (found[0].module, name) in self.sources.mirrored:
            home = found[0].module.replace(ASYNC, SYNC)
            if home != self.source.module.replace(ASYNC, SYNC):
                self.imports.setdefault(home, set()).add(name)
        elif name in source.definitions:
            self.imports.setdefault(source.module, set()).add(name)
        elif name in source.imports:
            module, original = source.imports[name]
            self.imports.setdefault(module, set()).add(name if original == name else f"{original} as {name}")
        return name

    def need_module(self, source: Source, alias: str = "") -> str:
        package, _, module = source.module.rpartition(".")
        self.imports.setdefault(package, set()).add(module + alias)
        return module

    def annotation(self, node: ast.expr, source: Source) -> str:
        """The synchronous form of an annotation, its names imported."""
        if isinstance(node, ast.BinOp):
            return f"{self.annotation(node.left, source)} | {self.annotation(node.right, source)}"
        handler = self.handler(node, source)
        if handler is not None:
            arguments, result, home = handler
            self.imports.setdefault("collections.abc", set()).add("Callable")
            shown = ", ".join(self.annotation(argument, home) for argument in arguments)
            return f"Callable[[{shown}], {self.annotation(result, home)}]"
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                raise source.fail(part, f"the annotation {part.value!r} is text", "write it without quotes")
            if isinstance(part, ast.Name):
                if part.id in WAITING:
                    raise source.fail(
                        node, f"{ast.unparse(node)} has no synchronous form", "use a handler or a plain type"
                    )
                found = self.sources.find(source, part.id)
                if found is not None and self._holds_waiting(*found):
                    raise source.fail(
                        node,
                        f"{part.id} waits and has no twin",
                        "export it in orbitmq.client, or keep it out of public names",
                    )
                self.need(source, part.id)
        return ast.unparse(node)

    def _holds_waiting(self, source: Source, definition: ast.stmt) -> bool:
        """Whether a type from `_async` without twin waits, or has fields that do."""
        if isinstance(definition, ast.ClassDef):
            if (source.module, definition.name) in self.sources.mirrored:
                return False
            fields = [node.annotation for node in definition.body if isinstance(node, ast.AnnAssign)]
            return self.sources.waits(source, definition) or any(
                self.sources.is_mirrored(source, part.id)
                for field in fields
                for part in ast.walk(field)
                if isinstance(part, ast.Name)
            )
        return any(isinstance(part, ast.Name) and part.id in WAITING for part in ast.walk(definition))

    def handler(self, node: ast.expr, source: Source) -> tuple[list[ast.expr], ast.expr, Source] | None:
        """Arguments and result of `Callable[[X], Awaitable[Y]]`, of it or None, or of an alias for it; and the module to read them in."""
        if isinstance(node, ast.BinOp) and ast.unparse(node.right) == "None":
            return self.handler(node.left, source)
        if isinstance(node, ast.Name):
            found = self.sources.find(source, node.id)
            if found is None or not isinstance(found[1], ast.Assign | ast.AnnAssign) or found[1].value is None:
                return None
            return self.handler(found[1].value, found[0])
        match node:
            case ast.Subscript(
                value=ast.Name(id="Callable"),
                slice=ast.Tuple(
                    elts=[ast.List(elts=arguments), ast.Subscript(value=ast.Name(id="Awaitable"), slice=result)]
                ),
            ):
                return arguments, result, source
        return None

    def outwards(self, node: ast.expr | None, source: Source, value: str) -> str:
        """What turns `value`, an object of the asyncio client, into its synchronous form; `value` when it is the same."""
        return self._convert(node, source, value, lambda name, item: f"{self.need(source, name)}({item}, self._loop)")

    def inwards(self, node: ast.expr | None, source: Source, value: str) -> str:
        """The reverse: what the asyncio client gets for `value`, an object of the program."""
        handler = self.handler(node, source) if node is not None else None
        if node is not None and handler is not None:
            arguments, _, home = handler
            names = [f"item{number}" for number in range(len(arguments))]
            shown = [self.outwards(argument, home, name) for argument, name in zip(arguments, names, strict=True)]
            listener = value if shown == names else f"lambda {', '.join(names)}: {value}({', '.join(shown)})"
            self.imports.setdefault(f"{SYNC}.handler_threads", set()).add("listening")
            listening = f"listening({listener})"
            return f"None if {value} is None else {listening}" if isinstance(node, ast.BinOp) else listening
        return self._convert(node, source, value, lambda name, item: f"{item}._twin")

    def _convert(self, node: ast.expr | None, source: Source, value: str, turn: object) -> str:
        if node is None or not self._names_twin(node, source):
            return value
        assert callable(turn)
        match node:
            case ast.Name(id=name):
                return str(turn(name, value))
            case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
                return f"None if {value} is None else {self._convert(left, source, value, turn)}"
            case ast.Subscript(value=ast.Name(id=kind), slice=inner) if kind in SEQUENCES:
                return f"[{self._convert(inner, source, 'each', turn)} for each in {value}]"
            case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, ast.Constant(value=kind)])) if (
                kind is ...
            ):
                return f"tuple({self._convert(inner, source, 'each', turn)} for each in {value})"
            case ast.Subscript(value=ast.Name(id="dict" | "Mapping"), slice=ast.Tuple(elts=[key, inner])) if (
                not self._names_twin(key, source)
            ):
                return f"{{key: {self._convert(inner, source, 'each', turn)} for key, each in {value}.items()}}"
        raise source.fail(
            node, f"{ast.unparse(node)} holds an object that has a twin", "teach generate_sync.py this type"
        )

    def _names_twin(self, node: ast.expr, source: Source) -> bool:
        return any(isinstance(part, ast.Name) and self.sources.is_mirrored(source, part.id) for part in ast.walk(node))

    # --- classes

    def write_class(self, definition: ast.ClassDef) -> None:
        name, source = definition.name, self.source
        bases, body_of, has = [], {}, set()
        if name in WRITTEN:
            module, base, body_of, has = WRITTEN[name]
            self.imports.setdefault(module, set()).add(base)
            bases = [base]
        else:
            for base_node in definition.bases:
                base = ast.unparse(base_node)
                if not self.sources.is_mirrored(source, base):
                    raise source.fail(
                        base_node, f"the base {base} of {name} has no twin", "inherit from classes with twins only"
                    )
                bases.append(self.need(source, base))
        if definition.decorator_list or (definition.keywords and name not in WRITTEN):
            raise source.fail(definition, f"{name} is decorated or has keywords", "mirror plain classes only")
        self.lines.append(f"class {name}({', '.join(bases)}):" if bases else f"class {name}:")
        self.docstring(definition, "    ")
        self.write_constructor(definition)
        public = [node for node in definition.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        known = {node.name for node in public} | attributes(definition)
        for stale in (INTERNAL.get(name, set()) | set(ATTRIBUTES.get(name, {}))) - known:
            raise source.fail(definition, f"{name} has no {stale}", "take it out of the tables of sync_sources.py")
        for attribute in sorted(attributes(definition) - INTERNAL.get(name, set()) - has):
            if attribute not in ATTRIBUTES.get(name, {}):
                raise source.fail(
                    definition,
                    f"nobody says what the attribute {name}.{attribute} is",
                    "enter it in INTERNAL or ATTRIBUTES of sync_sources.py",
                )
        for attribute, annotation in ATTRIBUTES.get(name, {}).items():
            self.lines += [
                "    @property",
                f"    def {attribute}(self) -> {self.annotation(expression(annotation), source)}:",
            ]
            self.lines += [f"        return self._twin.{attribute}", ""]
        for node in public:
            if node.name == "__init__" or (node.name.startswith("_") and not node.name.startswith("__")):
                continue
            if node.name in INTERNAL.get(name, set()) | has:
                continue
            try:
                self.write_method(definition, node, body_of)
            except CannotMirrorError as error:
                raise CannotMirrorError(f"{name}.{node.name}: {error}") from error

    def write_constructor(self, definition: ast.ClassDef) -> None:
        name = definition.name
        self.need_module(self.source, " as source")
        if name in WRITTEN:
            self.lines += ["    __slots__ = ()", ""]
            return
        self.imports.setdefault(f"{SYNC}.loop_thread", set()).add("LoopThread")
        if name == OWNER:
            self.lines += [f"    def __init__(self, twin: source.{name}) -> None:"]
            self.lines += ['        self._loop = LoopThread(f"client {twin.client_id}")']
        else:
            self.lines += [f"    def __init__(self, twin: source.{name}, loop_thread: LoopThread) -> None:"]
            self.lines += ["        self._loop = loop_thread"]
        self.lines += [f"        self._twin: source.{name} = twin"]
        for node in definition.body:
            place = (name, getattr(node, "name", ""))
            if place in KEPT and isinstance(node, ast.FunctionDef):
                kind = self.annotation(result_of(self.source, node), self.source)
                self.lines += [f"        self._{node.name}: {kind} | None = None"]
            elif place in RESCUED and isinstance(node, ast.AsyncFunctionDef):
                kept = f"self._rescued_{node.name.strip('_')}"
                self.lines += [f"        {kept}: list[{self.original(result_of(self.source, node))}] = []"]
        self.lines.append("")

    def original(self, node: ast.expr) -> str:
        """A type of the asyncio client as it is there, by its module if it has a twin of the same name."""
        found = self.sources.find(self.source, ast.unparse(node))
        if found is None or not self.sources.is_mirrored(self.source, ast.unparse(node)):
            return self.annotation(node, self.source)
        return f"{self.need_module(found[0])}.{ast.unparse(node)}"

    def write_method(
        self, owner: ast.ClassDef, node: ast.FunctionDef | ast.AsyncFunctionDef, body_of: dict[str, str]
    ) -> None:
        source, name = self.source, DUNDERS.get(node.name, node.name)
        where = f"{owner.name}.{node.name}"
        if node.name.startswith("__") and node.name not in DUNDERS:
            raise source.fail(node, f"{where} has no synchronous form", "give it an ordinary name")
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if decorators not in ([], ["property"], ["overload"]):
            raise source.fail(
                node, f"{where} is decorated with {decorators}", "only property and overload are mirrored"
            )
        if not node.name.startswith("__") and "overload" not in decorators and ast.get_docstring(node) is None:
            raise source.fail(
                node,
                f"{where} has no docstring",
                "write one if it is for programs; else enter it in INTERNAL of sync_sources.py",
            )
        for decorator in decorators:
            if decorator != "property":
                self.need(source, decorator)
            self.lines.append(f"    @{decorator}")
        returns = result_of(source, node)
        iterates = isinstance(returns, ast.Subscript) and ast.unparse(returns.value) == "AsyncIterator"
        if iterates:
            assert isinstance(returns, ast.Subscript)
            self.imports.setdefault("collections.abc", set()).add("Iterator")
            result = f"Iterator[{self.annotation(returns.slice, source)}]"
        else:
            result = self.annotation(returns, source)
        if result == "Self" and node.name not in ("__aenter__", "__aiter__"):
            raise source.fail(node, f"{where} returns Self", "return something else")
        self.lines.append(f"    def {name}({self.parameters(node.args, source)}) -> {result}:")
        if decorators == ["overload"]:
            self.lines += ["        ...", ""]
            return
        self.docstring(node, "        ")
        if node.name in body_of:
            body = [f"return {body_of[node.name]}"]
        elif iterates:
            assert isinstance(returns, ast.Subscript)
            body = self.iterating_body(node, returns.slice)
        else:
            body = self.body(owner, node, decorators, returns)
        self.lines += [f"        {line}" for line in body]
        self.lines.append("")

    def parameters(self, arguments: ast.arguments, source: Source) -> str:
        copy = ast.parse(f"def f({ast.unparse(arguments)}): pass").body[0]
        assert isinstance(copy, ast.FunctionDef)
        for argument in all_arguments(copy.args):
            if argument.annotation is None:
                if argument.arg != "self":
                    raise source.fail(arguments, f"parameter {argument.arg} has no annotation", "annotate it")
                continue
            argument.annotation = expression(self.annotation(argument.annotation, source))
        copy.args.defaults = [self.default(node, source) for node in copy.args.defaults]
        copy.args.kw_defaults = [node and self.default(node, source) for node in copy.args.kw_defaults]
        return ast.unparse(copy.args)

    def default(self, node: ast.expr, source: Source) -> ast.expr:
        """A default value; a private constant is replaced by its value, other names are imported."""
        if isinstance(node, ast.Name):
            definition = source.definitions.get(node.id)
            if (
                node.id.startswith("_")
                and isinstance(definition, ast.Assign | ast.AnnAssign)
                and definition.value is not None
            ):
                return definition.value
        for part in ast.walk(node):
            if isinstance(part, ast.Name):
                self.need(source, part.id)
        return node

    def iterating_body(self, node: ast.FunctionDef | ast.AsyncFunctionDef, item: ast.expr) -> list[str]:
        call = f"self._loop.iterate(self._twin.{node.name}({self.forwarded(node.args)}))"
        converted = self.outwards(item, self.source, "item")
        return [f"return {call}"] if converted == "item" else [f"for item in {call}:", f"    yield {converted}"]

    def body(
        self,
        owner: ast.ClassDef,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        decorators: list[str],
        returns: ast.expr,
    ) -> list[str]:
        """The call into the loop, and what becomes of its result."""
        if node.name == "__aiter__":
            return ["return self"]
        handlers = [
            argument.arg
            for argument in all_arguments(node.args)
            if argument.annotation is not None and self.handler(argument.annotation, self.source)
        ]
        if handlers and any(argument.arg == "concurrency" for argument in all_arguments(node.args)):
            return self.handling_body(owner, node, handlers)
        call = f"self._twin.{node.name}({self.forwarded(node.args)})"
        if (owner.name, node.name) in RESCUED:
            kept = f"self._rescued_{node.name.strip('_')}"
            taken = f"{kept}.pop() if {kept} else self._loop.run({call}, rescue={kept}.append)"
            returned = self.outwards(returns, self.source, "found")
            first = [f"found = {taken}"]
            if node.name == "__anext__":
                first = ["try:", f"    {first[0]}", "except StopAsyncIteration:", "    raise StopIteration from None"]
            if returned == "found":
                return [*first, "return found"]
            return [
                *first,
                "try:",
                f"    return {returned}",
                "except BaseException:",
                f"    {kept}.append(found)",
                "    raise",
            ]
        if node.name == "__anext__":
            raise self.source.fail(node, f"{owner.name} iterates", "enter it in RESCUED of sync_sources.py")
        if node.name == "__aenter__":
            way = "open" if owner.name == OWNER else "run"
            return [f"self._loop.{way}({call})", "return self"]
        ending = node.name in ENDING
        if isinstance(node, ast.AsyncFunctionDef):
            way = "run"
            if owner.name == OWNER and (ending or node.name == "start"):
                way = "close" if ending else "open"
            elif ending:
                way = "end"
            value = f"self._loop.{way}({call})"
        elif decorators == ["property"]:
            value = f"self._loop.do(lambda: self._twin.{node.name})"
        else:
            forwarded = self.forwarded(node.args)
            parts = f"self._twin.{node.name}, {forwarded}".removesuffix(", ")
            value = f"self._loop.{'end_plain' if ending else 'do'}({parts})"
        if (
            sum(getattr(method, "name", "") == node.name for method in owner.body) > 1
        ):  # overloads, which no union of arguments fits
            self.imports.setdefault("typing", set()).add("Any")
            self.imports.setdefault("collections.abc", set()).add("Callable")
            first = [f"{node.name}: Callable[..., Any] = self._twin.{node.name}"]
            value = value.replace(f"self._twin.{node.name}", node.name)
        else:
            first = []
        converted = self.outwards(returns, self.source, "found")
        if (owner.name, node.name) in KEPT:
            kept = f"self._{node.name}"
            return [
                f"if {kept} is None:",
                f"    {kept} = {self.outwards(returns, self.source, value)}",
                f"return {kept}",
            ]
        if ast.unparse(returns) == "None":
            return [*first, value]
        if converted == "found" and not first:
            return [f"return {value}"]
        return [
            *first,
            f"found{': ' + ast.unparse(returns) if converted == 'found' else ''} = {value}",
            f"return {converted}",
        ]

    def handling_body(
        self, owner: ast.ClassDef, node: ast.FunctionDef | ast.AsyncFunctionDef, handlers: list[str]
    ) -> list[str]:
        """A method that calls handlers: they run on threads, and an interruption lets those that run come to their end."""
        stops = any(isinstance(method, ast.FunctionDef) and method.name == "stop" for method in owner.body)
        where = f"{owner.name}.{node.name}"
        if len(handlers) != 1 or not stops or not isinstance(node, ast.AsyncFunctionDef):
            raise self.source.fail(
                node,
                f"{where} takes {len(handlers)} handlers",
                "mirrored are: async def, one handler, and a method stop()",
            )
        (handler,) = handlers
        annotation = next(argument.annotation for argument in all_arguments(node.args) if argument.arg == handler)
        assert annotation is not None
        found = self.handler(annotation, self.source)
        assert found is not None
        (argument,), _, home = found
        self.imports.setdefault(f"{SYNC}.handler_threads", set()).add("HandlerThreads")
        item = self._convert(
            argument, home, "item", lambda name, value: f"{self.need(home, name)}({value}, self._loop)"
        )
        if item == "item":
            raise self.source.fail(node, f"the handler of {where} gets nothing with a twin", "teach generate_sync.py")
        forwarded = self.forwarded(node.args, {handler: "handlers"})
        return [
            f"with HandlerThreads(self._loop, {handler}, lambda item: {item}, concurrency) as handlers:",
            f"    self._loop.run(self._twin.{node.name}({forwarded}), on_interrupt=self._twin.stop)",
        ]

    def forwarded(self, arguments: ast.arguments, renamed: dict[str, str] | None = None) -> str:
        renamed = renamed or {}

        def value(argument: ast.arg) -> str:
            if argument.arg in renamed:
                return renamed[argument.arg]
            return self.inwards(argument.annotation, self.source, argument.arg)

        parts = [value(argument) for argument in [*arguments.posonlyargs, *arguments.args] if argument.arg != "self"]
        parts += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
        parts += [f"{argument.arg}={value(argument)}" for argument in arguments.kwonlyargs]
        parts += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
        return ", ".join(parts)

    def write_function(self, node: ast.FunctionDef) -> None:
        """A function that makes the owner of everything, such as `connect`."""
        returns = result_of(self.source, node)
        if ast.unparse(returns) != OWNER:
            raise self.source.fail(node, f"{node.name} does not return a {OWNER}", "export functions that do")
        self.lines.append(
            f"def {node.name}({self.parameters(node.args, self.source)}) -> {self.annotation(returns, self.source)}:"
        )
        self.docstring(node, "    ")
        self.lines += [f"    return {OWNER}(source.{node.name}({self.forwarded(node.args)}))", ""]

    def docstring(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: str) -> None:
        text = ast.get_docstring(node)
        if text is not None:
            lines = as_synchronous(text).splitlines()
            self.lines.append(f'{indent}"""{lines[0]}')
            self.lines += [f"{indent}{line}" if line else "" for line in lines[1:]]
            if len(lines) == 1:
                self.lines[-1] += '"""'
            else:
                self.lines.append(f'{indent}"""')
            if isinstance(node, ast.ClassDef):
                self.lines.append("")

    def text(self) -> str:
        head = as_synchronous(ast.get_docstring(self.source.tree) or self.source.path.stem)
        origin = f"src/orbitmq/client/_async/{self.source.place}"
        lines = [f'"""{head}', "", f"{MARK} from {origin}: change that file and run `make generate`.", '"""', ""]
        lines += ["from __future__ import annotations", ""]
        for module, names in sorted(self.imports.items()):
            lines.append(f"from {module} import {', '.join(sorted(names))}")
        return "\n".join([*lines, "", *self.lines])


def entry(sources: Sources) -> str:
    """`orbitmq.sync`: the names of `orbitmq`, those with a twin replaced."""
    tree = ast.parse((sources.root / "__init__.py").read_text(encoding="utf-8"))
    imports: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("orbitmq."):
            is_all = node.module == PACKAGE and node.names[0].name == "*"
            for name in sources.homes if is_all else [alias.name for alias in node.names]:
                home = sources.homes.get(name, PACKAGE) if node.module == PACKAGE else node.module
                if (home, name) in sources.mirrored or (home, name) in sources.functions:
                    home = home.replace(ASYNC, SYNC)
                elif home in sources.modules:
                    home = BY_HAND.get(name, home)
                imports.setdefault(home, set()).add(name)
    names = sorted({name for group in imports.values() for name in group})
    lines = [
        '"""The client for programs without asyncio: the names of `orbitmq`, with blocking calls.',
        "",
        "    import orbitmq.sync",
        "",
        '    with orbitmq.sync.connect("localhost:9876") as mq:',
        '        mq.send("orders", b"42", tag="created", delay_level=3)',
        "",
        "One client serves any number of threads. Errors, options and messages to send are those of `orbitmq`.",
        "",
        f"{MARK} from src/orbitmq/__init__.py: change that file and run `make generate`.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
    ]
    lines += [f"from {module} import {', '.join(sorted(group))}" for module, group in sorted(imports.items())]
    return "\n".join([*lines, "", f"__all__ = {names!r}", ""])


def generate(root: Path) -> dict[Path, str]:
    """The text of every file to be written. `root` is the package `orbitmq`."""
    sources = Sources(root)
    written: dict[Path, str] = {}
    wanted = {module for module, _ in [*sources.mirrored, *sources.functions]}
    for module in sorted(wanted):
        twin = Twin(sources, sources.modules[module])
        for statement in sources.modules[module].tree.body:
            if isinstance(statement, ast.ClassDef) and (module, statement.name) in sources.mirrored:
                twin.write_class(statement)
            elif isinstance(statement, ast.FunctionDef) and (module, statement.name) in sources.functions:
                twin.write_function(statement)
        path = root / "client" / "_sync" / twin.source.place
        written[path] = formatted(twin.text(), path)
    path = root / "sync.py"
    written[path] = formatted(entry(sources), path)
    return written


def strays(root: Path, written: dict[Path, str]) -> Iterator[Path]:
    """Files of earlier runs that are not written any more."""
    for path in sorted((root / "client" / "_sync").rglob("*.py")):
        if path not in written and f"\n{MARK} from" in path.read_text(encoding="utf-8"):
            yield path


def main(arguments: list[str], root: Path = ROOT / "src" / "orbitmq") -> int:
    """Write the files, or compare them with `--check`."""
    try:
        written = generate(root)
    except CannotMirrorError as error:
        print(f"the synchronous client cannot be written: {error}", file=sys.stderr)
        return 2
    stale = [path for path, text in written.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    stale += strays(root, written)
    if "--check" in arguments:
        for path in stale:
            print(f"{path.relative_to(root.parent)} is stale; run: make generate", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        if path in written:
            path.parent.mkdir(exist_ok=True)
            path.write_text(written[path], encoding="utf-8")
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
