"""The brokers of a cluster restarted one by one."""
