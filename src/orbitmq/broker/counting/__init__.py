"""What is counted: traffic by minute, hour and day, latencies, sizes, ages."""
