"""Builds the optional compiled leaf (`orbitmq.leaf`). Everything else about the package stands in pyproject.toml.

Without Cython or a C compiler, or with ORBITMQ_LEAF=off in the environment, the package is built all the same and runs in plain Python.
With ORBITMQ_LEAF=required it is built with the leaf or not at all, as a wheel for others is.
"""

import ast
import hashlib
import os
from pathlib import Path

from setuptools import Extension, setup

LEAF = Path("src/orbitmq/leaf")
SOURCES = ("inner.py", "timer_rows.py", "word_sums.py", "record_checks.py")  # as in orbitmq.leaf
BUILD = Path("build/leaf")


def joined(sources: list[str]) -> str:
    """The sources as one module: what one of them takes from another is there already, and is called as C."""
    parts = sources[:1]
    for source in sources[1:]:
        lines: list[str] = source.splitlines()
        for node in ast.parse(source).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("__future__", "orbitmq.leaf.")):
                lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def leaf_extensions() -> list[Extension]:
    """The extension, from a copy of its sources that knows which sources it is a copy of."""
    switch = os.environ.get("ORBITMQ_LEAF")
    if switch == "off":
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if switch == "required":
            raise
        return []
    sources = [(LEAF / name).read_text() for name in SOURCES]
    package = BUILD / "orbitmq" / "leaf"
    package.mkdir(parents=True, exist_ok=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    digest = hashlib.sha256("".join(sources).encode()).hexdigest()
    (package / "inner_compiled.py").write_text(f'{joined(sources)}\n\nSOURCE_DIGEST = "{digest}"\n')
    (package / "inner_compiled.pxd").write_text((LEAF / "inner_compiled.pxd").read_text())
    extension = Extension(
        "orbitmq.leaf.inner_compiled",
        [str(package / "inner_compiled.py")],
        extra_compile_args=["-O3", "-Wno-sign-compare"],
    )
    extensions: list[Extension] = cythonize([extension], include_path=[str(BUILD)], quiet=True)
    for extension in extensions:
        # A machine without a compiler does without. cythonize() forgets this when given before.
        extension.optional = switch != "required"
    return extensions


setup(ext_modules=leaf_extensions())
