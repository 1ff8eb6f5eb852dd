"""The repository read as text: habits that reviewers should not have to look for.

Rules of this file
1. Only files that git knows, or would know, are read: no environment, no build results.
2. Each test names file, line and remedy; an exception is listed here with its reason.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "orbitmq"
LINES_MAX = 600
NAMELESS = {"util", "utils", "common", "helper", "helpers", "misc", "base", "manager", "managers"}

CLOCK_CALLS = {
    "time": {
        "time",
        "time_ns",
        "monotonic",
        "monotonic_ns",
        "perf_counter",
        "perf_counter_ns",
        "clock_gettime",
        "sleep",
    },
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
FILE_CALLS = {
    "unlink", "touch", "mkdir", "rmdir", "iterdir", "glob", "rglob", "read_text", "write_text", "write_bytes",
    "symlink_to", "hardlink_to", "chmod", "stat", "lstat", "open_binary",
}  # fmt: skip
OS_ALLOWED = {"getpid", "fspath", "environ", "sep", "cpu_count", "sysconf", "PathLike"}

# A path of somebody's machine. Written in pieces so that this file does not find itself.
MACHINE_PATHS = re.compile(
    "|".join((r"(?<!\w)/" + r"home/\w", "/" + r"Users/\w", r"(?<!\w)/" + "root/", r"(?<!\w)/" + "work/"))
)
PUBLIC_HOSTS = {
    "repo.maven.apache.org", "repo1.maven.org", "maven.apache.org", "www.w3.org", "pypi.org", "registry.npmjs.org",
    "github.com", "www.apache.org", "rocketmq.apache.org", "docs.python.org",
}  # fmt: skip


def tracked() -> list[Path]:
    """Files under version control, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is no git checkout, so there is no list of the repository's files")
    return [path for line in listed.stdout.splitlines() if (path := ROOT / line).is_file()]


def python_files(*folders: str) -> list[Path]:
    return [
        path
        for path in tracked()
        if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in (folders or ("src", "tests", "benchmarks"))
    ]


def where(path: Path, node: ast.AST | int) -> str:
    line = node if isinstance(node, int) else getattr(node, "lineno", 0)
    return f"{path.relative_to(ROOT)}:{line}"


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_no_module_without_an_idea_in_its_name() -> None:
    found = [str(path.relative_to(ROOT)) for path in python_files() if NAMELESS & set(path.relative_to(ROOT).parts)]
    found += [str(path.relative_to(ROOT)) for path in python_files() if path.stem in NAMELESS]
    assert found == [], "name the idea that lives in the module"


def test_modules_stay_small() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {count} lines"
        for path in python_files("src", "scripts")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    ]
    assert long == [], f"split modules of more than {LINES_MAX} lines"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files("src", "tests", "benchmarks", "examples", "scripts")
        if path.read_text(encoding="utf-8").strip() and ast.get_docstring(parsed(path)) is None
    ]
    assert silent == [], "begin with a docstring: the idea, the rules of the file"


def test_every_package_of_the_source_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in python_files("src")
        if path.name == "__init__.py" and ast.get_docstring(parsed(path)) is None
    ]
    assert silent == []


def test_only_the_clock_reads_the_clock() -> None:
    found = [
        where(path, node)
        for path in python_files("src")
        if path != SOURCE / "clock.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name | ast.Attribute)
        and node.attr
        in CLOCK_CALLS.get(node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id, ())
    ]
    assert found == [], "take a Clock instead"


def test_only_the_file_layer_of_the_store_touches_files() -> None:
    found: list[str] = []
    for path in python_files("src"):
        if SOURCE / "store" not in path.parents or path.name == "files.py":
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", "") or ""]
                if {"shutil", "tempfile", "fcntl", "glob", "io"} & set(names):
                    found.append(where(path, node))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
                found.append(where(path, node))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
                found += [] if node.attr in OS_ALLOWED else [where(path, node)]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in FILE_CALLS:
                found.append(where(path, node))
    assert found == [], "go through store.files, so that faults can be injected there"


def test_no_swallowed_exceptions() -> None:
    found = [
        where(path, node)
        for path in python_files("src")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")))
        and all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
    ]
    assert found == [], "count it, bound it, report it"


def test_nothing_is_left_to_do() -> None:
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|HA" + r"CK)\b")
    found = [
        where(path, number)
        for path in python_files("src", "tests", "benchmarks", "examples", "scripts")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if marks.search(line)
    ]
    assert found == []


def bounds() -> list[tuple[str, ast.stmt | None]]:
    """Every name of `orbitmq.limits`, with the statement that follows it."""
    found: list[tuple[str, ast.stmt | None]] = []
    for path in sorted((SOURCE / "limits").glob("*.py")):
        body = parsed(path).body
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.append((node.target.id, following))
    return found


def test_every_bound_is_used() -> None:
    names = [name for name, _ in bounds()]
    assert len(names) > 20
    word = re.compile(r"\b[A-Z][A-Z0-9_]*\b(?!: Final)")
    used = {found for path in python_files("src") for found in word.findall(path.read_text(encoding="utf-8"))}
    unused = [name for name in names if name not in used]
    assert unused == [], "a bound that nobody checks bounds nothing"


def test_every_bound_stands_once() -> None:
    names = [name for name, _ in bounds()]
    assert sorted(names) == sorted(set(names)), "a bound has one place"


def test_every_bound_says_why() -> None:
    silent = [
        name
        for name, following in bounds()
        if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant))
    ]
    assert silent == []


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("store/settings.py", "StoreSettings"),
        ("broker/settings.py", "BrokerSettings"),
        ("server/configuration/settings.py", "ListenerSettings"),
        ("server/configuration/settings.py", "WatchSettings"),
        ("nameserver/config.py", "NameServerConfig"),
    ],
)
def test_every_setting_is_read_by_somebody(module: str, name: str) -> None:
    """A key that is called used must be used: some code reads its field."""
    struct = next(node for node in parsed(SOURCE / module).body if isinstance(node, ast.ClassDef) and node.name == name)
    fields = [
        node.target.id for node in struct.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    read: set[str] = set()
    for path in python_files("src"):
        read |= {node.attr for node in ast.walk(parsed(path)) if isinstance(node, ast.Attribute)}
    # Only shown to callers, who may ask a name server for its whole configuration; the process reads its own settings.
    shown_only = {"bind_address", "config_store_path", "server_channel_max_idle_time_seconds", "server_socket_backlog"}
    assert [field for field in fields if field not in read | shown_only] == []


def test_no_path_of_a_machine_is_committed() -> None:
    found = []
    for path in tracked():
        if path == Path(__file__).resolve() or path.name == ".gitignore":
            continue
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [where(path, number) for number, line in enumerate(lines, start=1) if MACHINE_PATHS.search(line)]
    assert found == []


def test_builds_name_public_registries_only() -> None:
    found = []
    for path in tracked():
        if path.suffix in (".toml", ".cfg", ".ini", ".xml", ".json", ".lock", ".npmrc", ".sh", ".yml", ".yaml") or path.name in (
            "Makefile", "run", ".npmrc", "pip.conf",
        ):  # fmt: skip
            if "vectors" in path.parts:
                continue
            for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
                for host in re.findall(r"https?://([A-Za-z0-9.-]+)", line):
                    if host not in PUBLIC_HOSTS and host not in ("localhost", "127.0.0.1"):
                        found.append(f"{where(path, number)} {host}")
    assert found == []


def headings(page: Path) -> set[str]:
    """What `#...` may name in a page: its headings as GitHub turns them into anchors."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    found: dict[str, int] = {}
    anchors = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, flags=re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = found[slug] = found.get(slug, -1) + 1
        anchors.add(f"{slug}-{count}" if count else slug)
    return anchors


def broken_links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        place = page.parent / file if file else page
        if re.match(r"[a-z]+:", target):
            continue
        if not place.exists() or (anchor and place.suffix == ".md" and anchor not in headings(place)):
            broken.append(target)
    return broken


def test_links_in_documents_lead_somewhere() -> None:
    pages = [path for path in tracked() if path.suffix == ".md"]
    assert len(pages) > 20
    broken = [f"{page.relative_to(ROOT)}: {target}" for page in pages for target in broken_links(page)]
    assert broken == [], "name a file, and a heading of it"


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Other\n\n## Twice\n\n## `Twice`\n\n## What's *this*?\n", encoding="utf-8")
    page = tmp_path / "page.md"
    good = ["other.md", "other.md#other", "other.md#twice-1", "other.md#whats-this", "#page", "https://example.org/x#y"]
    bad = ["gone.md", "other.md#gone", "other.md#twice-2", "#gone"]
    links = "".join(f"[a]({target})\n" for target in good + bad)
    page.write_text(f"# Page\n\n{links}\n```text\n[a](in-a-block.md)\n# not a heading\n```\n", encoding="utf-8")
    assert broken_links(page) == bad


def test_every_variable_of_ours_is_known() -> None:
    """A variable with our prefix that the server does not know would stop its start."""
    from orbitmq.server.configuration.keys import shared_keys
    from orbitmq.server.configuration.sources import OTHER_VARIABLES

    reads = re.compile(r"environ|getenv|envvar|export|^[A-Z_]+=|\$\{?ORBITMQ_")
    unknown: set[str] = set()
    for path in tracked():
        if path.suffix not in (".py", ".sh") and path.name not in ("Makefile", "run"):
            continue
        # The tests of configuration use wrong names on purpose.
        if path.name.startswith("test_settings") or path == Path(__file__).resolve():
            continue
        for line in path.read_text(encoding="utf-8").splitlines():
            for variable in re.findall(r"\bORBITMQ_[A-Z0-9_]*[A-Z0-9]\b", line) if reads.search(line) else ():
                if variable not in OTHER_VARIABLES and shared_keys().find_environment(variable) is None:
                    unknown.add(f"{path.relative_to(ROOT)}: {variable}")
    assert sorted(unknown) == []
