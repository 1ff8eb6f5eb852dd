"""Reading without the machinery of a group: explicit pulls and lite consumers."""
