"""gRPC as RocketMQ 5's clients speak it: calls, messages, status codes and what they mean for stored records.

Rules of this package
1. It sees lists of header fields and the bytes of messages, never a frame, a socket or a clock.
2. Modules that need protobuf import `messages`, the others do not: a server without a gRPC connection never loads it.
"""
