"""A Spark session that works on demand: one JSON line in, one JSON line out. Started by `spark_hand.py`, in a session of its own.

usage: spark_job.py KIND PLACE_JSON SETTINGS_JSON     KIND is kafka or orbitmq
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from spark_loads import KINDS, Place, load_of

from orbitmq.spark import session


def main() -> int:
    kind, place_text, settings_text = sys.argv[1:]
    place = json.loads(place_text)
    place["folder"] = Path(place["folder"])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes to the log
    settings = json.loads(settings_text)
    spark = session(f"local[{place['partitions']}]", app_name=f"benchmark-{kind}", **settings)
    load = KINDS[kind](spark, Place(**place))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        begin = time.monotonic()
        try:
            found = dict(load_of(load, asked["load"])(asked["count"]))
            found["wall_s"] = time.monotonic() - begin
            answer: dict[str, object] = {"figures": found}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
