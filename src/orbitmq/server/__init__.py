"""The only sockets that listen: connections, registration, configuration, and the life of the process."""
