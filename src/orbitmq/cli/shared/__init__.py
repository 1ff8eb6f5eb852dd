"""What many commands print and read: results, times, bodies, files, exit codes."""
