"""What a broker does for clients of RocketMQ 5: their calls in, answers out.

Each concern has a module, and `front` the table of them. Nothing is decided here that another front end decides as well: sends, pops,
transactions and members belong to the rooms of the broker. Only protobuf's messages are known here, no frame and no connection.
"""
