"""Seams for tests: files that fail on demand or record what was done to them."""
