"""The command line. Each command imports what it needs when it runs; `orbitmq --help` imports none of the server."""
