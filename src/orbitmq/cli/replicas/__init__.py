"""Commands about masters, slaves and replicated groups."""
