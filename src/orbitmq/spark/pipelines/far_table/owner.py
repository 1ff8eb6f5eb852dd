"""Who answers for the far table of a job.

Rules of this file
1. A connection made here ends with the job.
"""

from __future__ import annotations

from contextlib import ExitStack

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.far_table.catalog import Catalog


def owner_of(stack: ExitStack, catalog: Catalog | None, name_server: str | None) -> Catalog:
    """The catalog that was given, or that of the cluster. ConfigurationError when nothing says where it is."""
    if catalog is not None:
        return catalog
    if name_server is None:
        raise ConfigurationError("nothing says who keeps the catalog of the far table", remedy="give name_server")
    import orbitmq.sync

    return stack.enter_context(orbitmq.sync.connect(name_server)).far_table
