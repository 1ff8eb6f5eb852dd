"""The message store in RocketMQ's file formats: commit log, consume queues, index, recovery, retention."""
