"""Which pipelines there are, by the names that commands and files know them by.

Rules of this file
1. A pipeline is imported when it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from orbitmq.errors import ConfigurationError

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.settings import Pipeline

PIPELINES: Final[dict[str, str]] = {
    "archive": "orbitmq.spark.pipelines.archiving.archive",
    "changes": "orbitmq.spark.pipelines.publishing.publish",
    "dead-letters": "orbitmq.spark.pipelines.redriving.analysis",
    "redrive": "orbitmq.spark.pipelines.redriving.redrive",
    "replay": "orbitmq.spark.pipelines.replaying.replay",
    "report": "orbitmq.spark.pipelines.reporting.report",
    "schedule": "orbitmq.spark.pipelines.scheduling.job",
}
"""The module of each pipeline, whose function has its name, with `_` for `-`."""


def pipeline_named(name: str) -> Pipeline:
    """The function of a pipeline. ConfigurationError for a name that there is not."""
    module = PIPELINES.get(name)
    if module is None:
        raise ConfigurationError(f"there is no pipeline {name!r}", remedy=f"the pipelines are {', '.join(PIPELINES)}")
    found: Pipeline = getattr(importlib.import_module(module), name.replace("-", "_"))
    return found
