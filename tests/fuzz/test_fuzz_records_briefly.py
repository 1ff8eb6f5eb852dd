"""Some thousand inputs of fuzzers that need no socket in every test run; `make fuzz` runs a million."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

INPUTS = ("--count", "4000", "--seed", "20240229")
"""With planted bugs as without."""


@pytest.mark.parametrize(
    "fuzzer",
    [
        "fuzz_records.py",
        "fuzz_properties.py",
        "fuzz_filters.py",
        "fuzz_pops.py",
        "fuzz_extended.py",
        "fuzz_policies.py",
        "fuzz_plain_access.py",
        "fuzz_hpack.py",
        "fuzz_http2.py",
        "fuzz_grpc_messages.py",
        "fuzz_replication.py",
        "fuzz_etcd.py",
    ],
)
def test_fuzzer(fuzzer: str) -> None:
    command = [sys.executable, str(Path(__file__).with_name(fuzzer)), *INPUTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "4000 inputs" in done.stdout


PLANTED = {
    "what is refused in a file of accounts is quoted": """
import fuzz_plain_access as fuzzer
sound = fuzzer.read_yaml
def planted(data):
    try:
        return sound(data)
    except ValueError as error:
        raise ValueError(f"{error}: {data!r}")
fuzzer.read_yaml = planted
""",
    "a range begins one below what was written": """
import fuzz_plain_access as fuzzer
from orbitmq.access.plain import addresses
sound = addresses._range
def planted(text, at, field, highest):
    low, high = sound(text, at, field, highest)
    return low - 1, high
addresses._range = planted
""",
    "a slave takes a transfer for another place": """
import fuzz_replication as fuzzer
from orbitmq.replication.classic.closing import LinkEnd
from orbitmq.replication.classic.slave_link import SlaveLink
sound = SlaveLink.failed
def planted(link, why, *rest):
    if why is not LinkEnd.MISMATCH:
        sound(link, why, *rest)
SlaveLink.failed = planted
""",
    "a text of epochs has no sum": """
import fuzz_replication as fuzzer
from orbitmq.replication import epoch_marks
epoch_marks.body_crc = len
""",
    "a text of a view is read however it is written": """
import fuzz_etcd as fuzzer
from orbitmq.server.replication.engines import kept_text
fuzzer.read_view = lambda group, text: kept_text._read(kept_text.KeptView, group, text).view
""",
    "a record's properties may reach beyond its end": """
import fuzz_records as fuzzer
from orbitmq.protocol.records import CheckStatus, RecordCheck
sound = fuzzer.check_record
def planted(buffer, at, end, **options):
    found = sound(buffer, at, end, **options)
    if found.problem.startswith("properties of"):
        return RecordCheck(CheckStatus.VALID, end - at)
    return found
fuzzer.check_record = planted
""",
    "the first of two properties of one name wins": """
import fuzz_properties as fuzzer
def planted(properties, name):
    for entry in properties.split(b"\\x02"):
        found, _, value = entry.partition(b"\\x01")
        if found == name and name and value:
            return str(value, "utf-8", "replace")
    return None
fuzzer.find_property = planted
""",
    "a character outside Latin-1 escapes as UnicodeEncodeError": """
import fuzz_properties as fuzzer
def planted(properties):
    return {key: value.encode("latin-1").decode("latin-1") for key, value in sound(properties).items()}
sound = fuzzer.decode_properties
fuzzer.decode_properties = planted
""",
    "a text of a gRPC message may have the separators of properties": """
import fuzz_grpc_messages as fuzzer
from orbitmq.protocol.grpc import sent_messages
sent_messages._has_control = lambda text: False
""",
    "an extended unit may say an address instead of a tags code": """
import fuzz_extended as fuzzer
from orbitmq.store import extended_units
extended_units.ExtendedUnits.tags_code = lambda self, address: address if self._bases else None
""",
}


@pytest.mark.parametrize("bug", PLANTED)
def test_the_fuzzers_catch_planted_bugs(bug: str) -> None:
    program = (
        PLANTED[bug]
        + "import sys\nsys.exit(fuzzer.run('planted', fuzzer.corpus(), fuzzer.parse, fuzzer.TOKENS, refusals=()))\n"
    )
    command = [sys.executable, "-c", program, *INPUTS]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert "broke the parser" in done.stderr
