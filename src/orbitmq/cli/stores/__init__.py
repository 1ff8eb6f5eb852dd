"""Commands about store directories and their backups."""
