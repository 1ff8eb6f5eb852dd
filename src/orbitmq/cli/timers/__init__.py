"""Commands about what is to come: timers, recurring messages, the far tier."""
