"""Spark's Python daemon, importing PySpark as it is installed, compiled: `python -m orbitmq.spark.python_daemon`.

Spark puts `pyspark.zip`, which holds the same modules as source only, before everything else on the path of its workers, and Python
compiles them anew at every start: 1.4 s of CPU instead of 0.3. `orbitmq.spark.session` names this module to masters that are this machine.

Rules of this file
1. Nothing of PySpark is imported before the path is changed.
2. Where PySpark is not installed beside the zip, nothing is changed.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path


def without_zip(places: list[str]) -> list[str]:
    """The same places without a `pyspark.zip` whose modules stand compiled in one of them."""
    zipped = {place for place in places if place.endswith("/pyspark/python/lib/pyspark.zip")}
    return [place for place in places if place not in zipped or str(Path(place).parents[3]) not in places]


if __name__ == "__main__":
    sys.path[:] = without_zip(sys.path)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
