"""What an operator can watch: metrics read from the parts when somebody asks, health, and structured log lines."""
