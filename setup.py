"""Builds the optional compiled leaf (`orbitmq.leaf`). Everything else about the package stands in pyproject.toml.

Without Cython or a C compiler the package installs all the same and runs in plain Python.
"""

import hashlib
from pathlib import Path

from setuptools import Extension, setup

LEAF = Path("src/orbitmq/leaf")
BUILD = Path("build/leaf")


def leaf_extensions() -> list[Extension]:
    """The extension, from a copy of its source that knows which source it is a copy of."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    source = (LEAF / "inner.py").read_text()
    package = BUILD / "orbitmq" / "leaf"
    package.mkdir(parents=True, exist_ok=True)
    for directory in (package, package.parent):
        (directory / "__init__.py").touch()
    digest = hashlib.sha256(source.encode()).hexdigest()
    (package / "inner_compiled.py").write_text(f'{source}\n\nSOURCE_DIGEST = "{digest}"\n')
    (package / "inner_compiled.pxd").write_text((LEAF / "inner_compiled.pxd").read_text())
    extension = Extension(
        "orbitmq.leaf.inner_compiled",
        [str(package / "inner_compiled.py")],
        extra_compile_args=["-O2", "-Wno-sign-compare"],
    )
    extensions: list[Extension] = cythonize([extension], include_path=[str(BUILD)], quiet=True)
    for extension in extensions:
        extension.optional = (
            True  # a machine without a compiler does without; cythonize() forgets this when given before
        )
    return extensions


setup(ext_modules=leaf_extensions())
