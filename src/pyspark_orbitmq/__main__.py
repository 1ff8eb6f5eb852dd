"""`python -m pyspark_orbitmq`: which formats Spark finds with this Python, and which package stops it from finding any."""

from __future__ import annotations

import sys

from pyspark_orbitmq.finding import look_into, packages


def main() -> int:
    """Print a line for each package. The exit code is 1 when one of them stops Spark."""
    found = [look_into(package) for package in packages()]
    for package, name, problem in found:
        if problem is not None:
            print(f"{package}: cannot be imported: {problem}")
        else:
            print(f"{package}: " + ("no format" if name is None else f'format("{name}")'))
    broken = [one.package for one in found if one.problem is not None]
    if broken:
        print(f"Spark finds no format at all because of {', '.join(broken)}: repair, rename or uninstall it")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
