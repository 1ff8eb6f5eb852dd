"""Connections to the ports for remoting, and those that a server makes."""
