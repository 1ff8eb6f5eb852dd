"""Commands about a whole cluster: what it has, what is missing or differs, its file."""
