"""Connections to servers: one per address, requests matched to answers, name servers and routes."""
