"""YAML of account files: what is read, what is refused before it grows, and that nothing of the file is quoted."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.access.plain.yaml_text import Value, read_yaml, write_yaml
from orbitmq.limits.plain_access import PLAIN_DEPTH_MAX, PLAIN_FILE_BYTES_MAX, PLAIN_VALUES_MAX


def test_single_values_keep_what_was_written() -> None:
    tree = read_yaml(b"{a: 12345678, b: 0123456, c: yes, d: , e: ~, f: 'yes', g: 1.50, h: 99999999999999999999}")
    assert tree == {
        "a": 12345678,
        "b": "0123456",
        "c": True,
        "d": None,
        "e": None,
        "f": "yes",
        "g": "1.50",
        "h": "99999999999999999999",
    }


@pytest.mark.parametrize("data", [b"", b"\n# nothing\n", b"---\n", b"\xef\xbb\xbf"])
def test_a_file_without_content_is_nothing(data: bytes) -> None:
    assert read_yaml(data) is None


def test_an_alias_stands_for_what_it_names() -> None:
    assert read_yaml(b"a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def explosion(levels: int) -> bytes:
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, levels):
        again = b", ".join([b"*a%d" % (level - 1)] * 10)
        lines.append(b"a%d: &a%d [%s]" % (level, level, again))
    return b"\n".join(lines)


def test_aliases_that_explode_are_refused_before_they_do() -> None:
    assert read_yaml(explosion(3)) is not None
    with pytest.raises(ValueError, match=f"more than {PLAIN_VALUES_MAX} values"):
        read_yaml(explosion(9))


def test_the_depth_is_bounded() -> None:
    assert read_yaml(b"[" * PLAIN_DEPTH_MAX + b"]" * PLAIN_DEPTH_MAX) is not None
    for data in (b"[" * 100_000, b"- " * 500, b"{a: " * 100_000):
        with pytest.raises(ValueError, match="line 1, column"):
            read_yaml(data)


def test_a_huge_file_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="bytes"):
        read_yaml(b"#" * (PLAIN_FILE_BYTES_MAX + 1))


@pytest.mark.parametrize(
    "data",
    [
        b"a: [SECRET",
        b"a: 'SECRET",
        b"a: *SECRET",
        b"a: !SECRET b",
        b"a: !!python/object:SECRET {}",
        b"a: @SECRET",
        b"a: %SECRET\n%SECRET",
        b"<<: {SECRET: 1}",
        b"? [SECRET]\n: b",
        b"a: SECRET\n---\nb: SECRET",
        b"SECRET: 1\nSECRET: 2",
        b"\tSECRET: 1",
        b"a: SECRET\x00",
        b"a: SECRET\xff",
        b"a: &x [*x]  # SECRET",
    ],
)
def test_what_is_refused_is_never_quoted(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        read_yaml(data)
    assert "SECRET" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_file_that_is_half_written_is_refused_or_shorter() -> None:
    whole = b'accounts:\n- accessKey: "RocketMQ"\n  topicPerms: ["a=PUB", "b=SUB"]\n'
    for cut in range(len(whole)):
        try:
            tree = read_yaml(whole[:cut])
        except ValueError:
            continue
        assert tree is None or isinstance(tree, str | dict)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.text(st.characters(codec="utf-8", exclude_categories=["C"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc<~", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["accounts", "dataVersion", "true", "1"]), values, max_size=3))
def test_what_is_written_is_read_again(tree: dict[str, Value]) -> None:
    assert read_yaml(write_yaml(tree)) == tree


@given(st.binary(max_size=200) | st.text("-: []{},'\"&*!|>%#\n\tab1", max_size=80).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        read_yaml(data)
