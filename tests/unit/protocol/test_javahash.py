"""Java's string hash: values taken from a JVM, and a plain loop as the judge."""

from __future__ import annotations

import pytest

from orbitmq.protocol.javahash import index_key_hash, java_hash


def loop_hash(text: str) -> int:
    value = 0
    units = memoryview(text.encode("utf-16-be", "surrogatepass")).cast("B")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("order-1", -1207111310),
        ("order-2", -1207111309),
        ("user_10086", 1871779643),
        ("polygenelubricants", -(2**31)),
        ("你好", 652829),
        ("TopicTest#k1", 2746024),
    ],
)
def test_values_of_the_jvm(text: str, expected: int) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f600",
        "a\U0001f600b",
        "\ud83d",
        "\x00",
        "é" * 700,
        "a" * 511,
        "a" * 512,
        "b" * 513,
        "xyz" * 1000,
        "\uffff" * 1024,
    ],
    ids=lambda text: f"{text[:1]!a}x{len(text)}",
)
def test_agrees_with_the_plain_loop(text: str) -> None:
    assert java_hash(text) == loop_hash(text)


def test_every_length_around_the_chunk_border() -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 30
    for length in [*range(70), *range(505, 520), *range(1020, 1030)]:
        assert java_hash(text[:length]) == loop_hash(text[:length])


def index_form(text: str) -> int:
    value = loop_hash(text)
    return 0 if value == -(2**31) else abs(value)


@pytest.mark.parametrize(
    "key",
    [
        "k1",
        "",
        "order-1",
        "7F0000010B3C4E0E2F2A69BF323F0013",
        "FD0000000000000000000000000000020B304E0E2F2A69BF323F0013",
        "Ä" * 32,
        "7F0000010B3C4E0E2F2A69BF323F00\u00e413",
        "é0000010B3C4E0E2F2A69BF323F00131",
        "\U0001f600" * 56,
        "k" * 511,
        "k" * 512,
        "k" * 2000,
    ],
    ids=lambda key: f"{key[:3]!a}x{len(key)}",
)
@pytest.mark.parametrize("topic", ["TopicTest", "主题", "", "%RETRY%" + "g" * 248])
def test_index_key_hash_is_the_hash_of_the_whole_text(topic: str, key: str) -> None:
    assert index_key_hash(topic, key) == index_form(f"{topic}#{key}")


def test_index_key_of_the_file_format_example() -> None:
    assert index_key_hash("TopicTest", "k1") == 2746024


def test_the_smallest_hash_becomes_zero() -> None:
    # "#" is 35: solve 31^n * h(topic#) + h(key) = 2^31 by search over short keys.
    for number in range(100_000):
        text = f"T#{number}"
        assert index_key_hash("T", str(number)) == index_form(text)
        if number > 300:
            break
    prefix = loop_hash("x#") & 0xFFFFFFFF
    key = _key_with_hash((0x80000000 - prefix * pow(31, 8, 1 << 32)) & 0xFFFFFFFF)
    assert loop_hash("x#" + key) == -(2**31)
    assert index_key_hash("x", key) == 0


def _key_with_hash(target: int) -> str:
    """Eight UTF-16 units whose hash is `target`: digits of base 31 after a first unit that takes up the rest."""
    units = [0x100] * 8
    rest = (target - sum(unit * pow(31, 7 - at, 1 << 32) for at, unit in enumerate(units))) % (1 << 32)
    for at in range(8):
        power = 31 ** (7 - at)
        units[at] += rest // power
        rest %= power
    assert all(unit < 0xD800 for unit in units)
    return "".join(map(chr, units))
