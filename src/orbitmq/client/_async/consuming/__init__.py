"""Consuming as a member of a group: sharing queues, pulling, delivering, settling, offsets."""
