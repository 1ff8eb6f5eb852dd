"""A far table as a job has it: the catalog, and the directory that belongs to it.

Rules of this file
1. Files are written only below a URL whose `table.json` names the table that the owner keeps.
"""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.errors import ConfigurationError
from orbitmq.spark.pipelines.far_table.catalog import Catalog
from orbitmq.timing.far.storage import Storage
from orbitmq.timing.far_table.table_file import TABLE_FILE, decode_head


class FarTable:
    """A catalog and the place of its files."""

    def __init__(self, url: str, catalog: Catalog) -> None:
        """Raises ConfigurationError when the URL is no far table, or another one than the catalog's."""
        self.url = url
        self.catalog = catalog
        self.status = catalog.status()  # first: it waits for an owner that is being started, and makes the table
        self.storage = Storage.at(url)
        content = self.storage.read(TABLE_FILE)
        if content is None:
            raise ConfigurationError(
                f"there is no {TABLE_FILE} at {url}",
                remedy="the broker that owns the table writes it when it starts; give the URL that stands in its configuration",
            )
        head = decode_head(content)
        if head.table != self.status.table:
            raise ConfigurationError(
                f"{url} is far table {head.table}, and the cluster keeps the catalog of {self.status.table} at {self.status.url}",
                remedy="give the URL of this cluster's table, or the name servers of the other cluster",
            )
        self.bucket_ms = head.bucket_ms

    def remove(self, names: Sequence[str]) -> None:
        """Files that no catalog lists: those of an attempt that came to nothing."""
        for name in names:
            self.storage.remove(name)
