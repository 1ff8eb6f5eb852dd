"""Which release of orbitmq this is. Kept apart so that telling it costs nothing: the build reads it from here, too."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0.dev0"
