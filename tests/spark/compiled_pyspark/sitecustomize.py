"""Spark's Python processes import PySpark as it is installed, compiled, instead of compiling it anew at every start.

Spark puts `pyspark.zip`, which holds the same modules as source only, before everything else on the path of its workers. A start of one
costs 0.75 s of CPU then, and a driver with a stream starts a dozen. Python imports this file at every start when its folder is on
PYTHONPATH; where PySpark is not installed beside the zip, nothing is changed.
"""

import sys
from pathlib import Path

for zipped in [place for place in sys.path if place.endswith("/pyspark/python/lib/pyspark.zip")]:
    if str(Path(zipped).parents[3]) in sys.path:
        sys.path.remove(zipped)
