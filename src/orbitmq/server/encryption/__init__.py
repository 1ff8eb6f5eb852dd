"""TLS: contexts, certificates that are read anew, and one of our own for a try."""
