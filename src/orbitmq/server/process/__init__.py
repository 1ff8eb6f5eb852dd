"""What a server has once: its loop's turns and timers, signals, its supervisor, memory."""
