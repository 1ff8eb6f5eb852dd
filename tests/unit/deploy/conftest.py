"""Lets the tests of this folder, and those of a live server, share the reader of expressions."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
