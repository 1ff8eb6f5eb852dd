"""Bounds of access control as RocketMQ 4 keeps it: accounts in YAML files."""

from __future__ import annotations

from typing import Final

PLAIN_FILE_BYTES_MAX: Final = 4_194_304
"""Largest file of accounts; a larger one is refused. A thousand accounts with a hundred permissions each are about 3 MB."""

PLAIN_FILES_MAX: Final = 256
"""Files of accounts in the folder, its subfolders included; more are refused. Each is looked at every few seconds."""

PLAIN_FOLDER_DEPTH_MAX: Final = 4
"""Folders inside each other in which files of accounts are looked for; deeper ones are refused."""

PLAIN_VALUES_MAX: Final = 200_000
"""Values in one file, those that aliases repeat counted each time; more are refused. It bounds what a few lines of aliases can make."""

PLAIN_DEPTH_MAX: Final = 8
"""Lists and tables inside each other in one file; deeper ones are refused. Accounts need four."""

PLAIN_SECRET_LENGTH_MIN: Final = 7
"""Characters of an access key and of a secret key, as in RocketMQ; shorter ones are refused."""

PLAIN_LOOK_MS: Final = 2_000
"""How often files of accounts are compared with what was read. A change is read when it has stood still between two looks, so it is in
force after four seconds; RocketMQ looks every five."""
