"""RocketMQ's remoting protocol: frames, headers, codes, bodies, and a connection without a socket."""
