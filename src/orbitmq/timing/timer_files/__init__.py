"""RocketMQ's timer files, byte for byte: wheel, timer log, checkpoint, counts; and the tools that look at them."""
