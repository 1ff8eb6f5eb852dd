"""Requests of administration, one module for each thing they are about."""
