"""When a message falls due, and bringing it to its topic: delay levels, timers, the far tier, recurring messages."""
