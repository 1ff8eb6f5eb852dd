"""Commands that run servers and workers, and those about the settings of servers."""
