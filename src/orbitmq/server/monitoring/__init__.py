"""The HTTP port: metrics, health, and who may ask."""
