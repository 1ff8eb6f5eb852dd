"""Timer messages of one store: what is pending, the files that RocketMQ reads, and releasing at the exact millisecond."""
