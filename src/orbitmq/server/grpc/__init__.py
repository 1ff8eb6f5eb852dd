"""gRPC on a port of the server: accepted connections on one side, a handler of calls that knows no frames on the other."""
