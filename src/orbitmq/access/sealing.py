"""Sealing: the table of users encrypted with a key that lies in a file of its own, so that a copy of the data directory tells no password.

    key file                 keys of 32 bytes in base64, one a line; what follows a # is a remark
    sealed table             {"sealed": "AES-256-GCM", "nonce": base64, "content": base64}

Rules of this file
1. The first key seals; every one of them opens. A new key is put before the old one, which goes once the server has started with both.
2. A nonce is used once: the caller brings twelve random bytes for each sealing.
3. `cryptography` is imported where a key is used, and nowhere else.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final

_METHOD: Final = "AES-256-GCM"
_ABOUT: Final = b"orbitmq access table"
"""Sealed with the content: nothing else that a key of ours has encrypted can take its place."""

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12


def read_keys(text: str) -> tuple[bytes, ...]:
    """The keys in a key file. ValueError, which tells nothing about them, where there is none or a line is none."""
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        word = line.partition("#")[0].strip()
        if word:
            try:
                key = base64.b64decode(word, validate=True)
            except binascii.Error:
                raise ValueError(f"line {number} is not base64") from None
            if len(key) != KEY_BYTES:
                raise ValueError(f"the key in line {number} has {len(key)} bytes instead of {KEY_BYTES}")
            keys.append(key)
    if not keys:
        raise ValueError("there is no key in it")
    return tuple(keys)


def is_sealed(document: Mapping[str, object]) -> bool:
    return "sealed" in document


def seal(content: bytes, key: bytes, nonce: bytes) -> dict[str, str]:
    """A sealed table. Some 1 GB a second."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    closed = AESGCM(key).encrypt(nonce, content, _ABOUT)
    return {"sealed": _METHOD, "nonce": base64.b64encode(nonce).decode(), "content": base64.b64encode(closed).decode()}


def unseal(document: Mapping[str, object], keys: Sequence[bytes]) -> bytes:
    """The content of a sealed table. ValueError where no key opens it, or where it was changed."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce, closed = document.get("nonce"), document.get("content")
    if document.get("sealed") != _METHOD or not isinstance(nonce, str) or not isinstance(closed, str):
        raise ValueError("it is sealed in a way that is not known here")
    for key in keys:
        try:
            return AESGCM(key).decrypt(base64.b64decode(nonce), base64.b64decode(closed), _ABOUT)
        except InvalidTag:
            continue
        except ValueError:
            break  # no base64, or no nonce
    raise ValueError("no key opens it")
