"""Replication over sockets: the port of a master, the connection of a slave, and which of them a broker has."""
