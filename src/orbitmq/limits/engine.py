"""Bounds of the engine that keeps the view of a replicated group: its address, questions, answers, presence."""

from __future__ import annotations

from typing import Final

ENGINE_ENDPOINTS_MAX: Final = 9
"""Members of an engine that an address names. etcd advises seven at most."""

ENGINE_QUESTION_MS: Final = 1_800
"""A question to the engine is given up after this, whatever endpoints were asked. Less than `ENGINE_ANSWER_MS`, after which
a member has given it up anyhow."""

ENGINE_ENDPOINT_MS: Final = 600
"""An endpoint that does not answer for so long is left for another one, where there is another one."""

ENGINE_PAUSE_MS: Final = 500
"""Between two tries of a watch, or of presence, when the engine does not answer."""

ENGINE_DENIED_MS: Final = 5_000
"""A password that was refused is not tried again for so long: etcd spends a tenth of a second of a core on each."""

ENGINE_HEAD_BYTES_MAX: Final = 16_384
"""Head of an HTTP answer."""

ENGINE_ANSWER_BYTES_MAX: Final = 262_144
"""Body of an answer, and one piece of a watch."""

ENGINE_VALUE_BYTES_MAX: Final = 4_096
"""Text under one key: a view, or where a member is reached."""

ENGINE_PLACES_MAX: Final = 32
"""Places of a group that are read: members, and some that were removed and still run."""

ENGINE_IDLE_CONNECTIONS_MAX: Final = 2
"""Connections to an endpoint that are kept for the next question."""

ENGINE_PASSWORD_BYTES_MAX: Final = 1_024
"""A file that is longer has no password in it."""

ENGINE_TOKEN_CHARS_MAX: Final = 8_192
"""What the engine gives for a password."""

PRESENCE_TTL_S: Final = 10
"""A member that ended without a word is named as present for so long."""

PRESENCE_RENEW_MS: Final = 3_000
"""Between two renewals: two may fail."""
