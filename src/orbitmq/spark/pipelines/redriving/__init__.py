"""The pipeline `redrive`: dead letters back to their topics, in bulk."""
