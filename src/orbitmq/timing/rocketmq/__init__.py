"""RocketMQ's timer files, byte for byte, as an exchange format: read when its store is taken over, written when one is left to it."""
