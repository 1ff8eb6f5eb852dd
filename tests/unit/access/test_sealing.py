"""The table of users encrypted: what opens it, and what does not."""

from __future__ import annotations

import base64

import pytest

from orbitmq.access.sealing import is_sealed, read_keys, seal, unseal

KEY, OTHER, NONCE = b"k" * 32, b"o" * 32, b"n" * 12


def test_a_key_file_has_one_key_a_line() -> None:
    one, two = base64.b64encode(KEY).decode(), base64.b64encode(OTHER).decode()
    assert read_keys(f"{one}\n") == (KEY,)
    assert read_keys(f"# of May\n\n  {two}  # new\r\n{one}") == (OTHER, KEY)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no key"),
        ("# nothing", "no key"),
        ("not a key!", "line 1 is not base64"),
        (f"{base64.b64encode(KEY).decode()}\nc2hvcnQ=", "the key in line 2 has 5 bytes instead of 32"),
    ],
)
def test_a_key_file_without_keys_is_refused_and_not_quoted(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        read_keys(text)
    assert "not a key!" not in str(refused.value)


def test_any_of_the_keys_opens() -> None:
    sealed = seal(b"alice: secret", KEY, NONCE)
    assert is_sealed(sealed)
    assert not is_sealed({"users": {}})
    assert "secret" not in str(sealed)
    assert unseal(sealed, [OTHER, KEY]) == b"alice: secret"
    with pytest.raises(ValueError, match="no key opens it"):
        unseal(sealed, [OTHER])


@pytest.mark.parametrize("member", ["nonce", "content", "sealed"])
def test_what_was_changed_does_not_open(member: str) -> None:
    sealed = dict(seal(b"alice: secret", KEY, NONCE))
    for wrong in ("", "Z" + sealed[member][1:], sealed[member][:-8], "-"):
        with pytest.raises(ValueError, match=r"no key opens it|not known here"):
            unseal({**sealed, member: wrong}, [KEY])
    with pytest.raises(ValueError, match="not known here"):
        unseal({name: value for name, value in sealed.items() if name != member}, [KEY])
