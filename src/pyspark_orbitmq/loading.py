"""Loading a data source so that nothing it lacks can harm other formats.

What goes wrong while Spark looks for formats is reported as "data source not found", for every format of the installation. So a
source that cannot be loaded is replaced by one with its name that says the reason as soon as somebody uses it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

from pyspark.sql.datasource import DataSource


def source_or_reason(name: str, module: str, attribute: str, *, package: str) -> type[DataSource]:
    """The class `attribute` of `module`, or one whose every use raises ImportError with the reason why that cannot be loaded.

    `package` is where the answer is going to stand as `DefaultSource`; Spark's processes find it again by that name.
    """
    try:
        source: type[DataSource] = getattr(import_module(module), attribute)
        return source
    except Exception as problem:
        return _unusable(name, f"{type(problem).__name__}: {problem}", package)


def _unusable(source_name: str, reason: str, package: str) -> type[DataSource]:
    class DefaultSource(DataSource):
        """Stands in for a source that cannot be loaded."""

        def __init__(self, options: Mapping[str, str]) -> None:
            raise ImportError(
                f'format("{source_name}") cannot be used: its code could not be loaded: {reason} '
                "(install it again where Spark's Python finds it: pip install 'orbitmq[spark]')"
            )

        @classmethod
        def name(cls) -> str:
            return source_name

    DefaultSource.__module__ = package
    DefaultSource.__qualname__ = "DefaultSource"
    return DefaultSource
