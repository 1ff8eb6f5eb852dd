"""Fuzzer of account files and address patterns of RocketMQ 4. Run: `python tests/fuzz/fuzz_plain_access.py --count 1000000 --seed 7`.

For every input: reading refuses or succeeds within its bounds; no refusal quotes the secret that stands in the file; what was read is
the same when it is written and read again. The same bytes are an address pattern: one that was read and names single addresses lets in
each of them, and never an address that no choice of it covers.
"""

from __future__ import annotations

import sys

from mutations import run

from orbitmq.access.plain.accounts import read_plain_tree
from orbitmq.access.plain.addresses import AddressPattern, address_fields, read_address_pattern
from orbitmq.access.plain.yaml_text import Value, read_yaml, write_yaml
from orbitmq.limits.plain_access import PLAIN_DEPTH_MAX, PLAIN_VALUES_MAX

SECRET = "Sesame0Sesame"
FILE = f"""
globalWhiteRemoteAddresses: [10.10.103.*, "192.168.0.{{1,2}}"]
accounts:
- accessKey: RocketMQ
  secretKey: {SECRET}
  whiteRemoteAddress: 2001:db8::1-ff:*
  admin: false
  defaultTopicPerm: DENY
  topicPerms: [a=PUB, b=PUB|SUB]
- &a {{accessKey: "second-key", secretKey: '{SECRET}', groupPerms: &p [g=SUB]}}
dataVersion: [{{counter: 3, timestamp: 1700000000000}}]
""".encode()
PATTERNS = (
    b"192.168.0.7", b"10.0.0.1,10.0.0.2", b"192.168.0.{7,8}", b"192.168.*.*", b"192.168.1-20.*", b"2001:db8:*",
    b"2::ac5:78:1-200:*", b"1050::5:600:300c:{1,ff}", b"::ffff:10.0.0.1", b"*",
)  # fmt: skip
TOKENS = [
    b"*",
    b"-",
    b"::",
    b"{",
    b"}",
    b",",
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!str ",
    b"\n- ",
    b": ",
    b"|",
    b"'",
    b'"',
    b"\t",
    b"---\n",
    b"%",
]
ADDRESSES = [
    (text, address_fields(text))
    for text in ("10.0.0.1", "192.168.0.7", "192.168.3.9", "2001:db8::7:1", "::1", "no address")
]


def corpus() -> list[bytes]:
    return [FILE, FILE[:200], b"accounts: []", b"a: &x [1, 2]\nb: [*x, *x]\n", *PATTERNS]


def parse(data: bytes) -> str:
    found = _read_file(data)
    _read_pattern(data[:200].decode("utf-8", "replace"))
    return found


def _read_file(data: bytes) -> str:
    try:
        tree = read_yaml(data)
    except ValueError as error:
        return _refused("no YAML", error, "")
    assert _size(tree, 0) <= PLAIN_VALUES_MAX
    assert read_yaml(write_yaml(tree)) == tree
    try:
        file = read_plain_tree(tree, "file")
    except ValueError as error:
        return _refused("no accounts", error, _shown(tree))
    assert SECRET not in repr(file) or SECRET in _shown(tree)
    return "read"


def _refused(how: str, error: ValueError, shown: str) -> str:
    assert SECRET not in str(error) or SECRET in shown, error
    return how


def _shown(tree: Value) -> str:
    """What errors may show: everything but secret keys."""
    if isinstance(tree, dict):
        return " ".join(f"{key} {'' if key == 'secretKey' else _shown(value)}" for key, value in tree.items())
    return " ".join(map(_shown, tree)) if isinstance(tree, list) else str(tree)


def _size(tree: Value, depth: int) -> int:
    assert depth <= PLAIN_DEPTH_MAX
    if isinstance(tree, dict):
        return 1 + sum(1 + _size(value, depth + 1) for value in tree.values())
    return 1 + sum(_size(value, depth + 1) for value in tree) if isinstance(tree, list) else 1


def _read_pattern(text: str) -> None:
    try:
        pattern = read_address_pattern(text)
    except ValueError:
        return
    for _, fields in ADDRESSES:
        assert pattern.matches(fields) == _covered(pattern, fields), text
    for choice in pattern.choices:
        assert len(choice) in (4, 8), text
        assert pattern.matches(tuple(low for low, _ in choice)), text
        assert choice[0][0] == choice[0][1], text


def _covered(pattern: AddressPattern, fields: tuple[int, ...]) -> bool:
    if pattern.everywhere:
        return True
    for choice in pattern.choices:
        if len(choice) == len(fields):
            inside = [low <= field <= high for field, (low, high) in zip(fields, choice, strict=True)]
            if all(inside):
                return True
    return False


if __name__ == "__main__":
    sys.exit(run("plain access", corpus(), parse, TOKENS, refusals=()))
