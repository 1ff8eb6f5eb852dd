"""The order-timeout story at a pair of brokers that fail: `make demo-pair`.

`brokers` starts, kills and restarts the processes, `shop` sends, recalls and receives, `account` says which promises were kept, and
`story` puts them in order.
"""
