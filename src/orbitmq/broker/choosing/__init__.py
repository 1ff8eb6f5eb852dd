"""Which messages a consumer gets: what it subscribes to, and asking messages whether they are that."""
