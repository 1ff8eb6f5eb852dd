"""`format("orbitmq")` in any Spark session: Spark imports the packages whose names begin with `pyspark_` and takes `DefaultSource`.

Rules of this file
1. It cannot fail: one package of this kind that cannot be imported takes the formats of all of them away.
2. It imports nothing that is slow: the processes that plan queries wait for it.
"""

from __future__ import annotations

from pyspark_orbitmq.loading import source_or_reason

DefaultSource = source_or_reason("orbitmq", "orbitmq.spark.source", "OrbitmqSource", package=__name__)
