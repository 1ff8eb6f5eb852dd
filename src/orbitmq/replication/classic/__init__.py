"""RocketMQ's classic master and slave: one connection, positions one way, the log the other.

`master_link` and `slave_link` are its two ends, with the same `link_settings`; both say why they closed by `closing`. A master sends
`whole_records` where it can, at a `send_rate`.
"""
