"""The order-timeout story at a replicated group of three, whose leaders fail: `make demo-failover`.

`etcd` starts the group's engine, `network` lets every connection pass where it can be cut, `members` starts, kills and freezes the
processes, and `story` puts them in order. The shop and the account of what was promised are those of `order_timeout_pair`.
"""
