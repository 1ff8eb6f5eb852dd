"""Decisions of a broker, one module for each concern; time, store and connections come from outside."""
