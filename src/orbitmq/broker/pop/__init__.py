"""POP consumption: the broker hands messages out one by one, and remembers which are not acknowledged yet."""
