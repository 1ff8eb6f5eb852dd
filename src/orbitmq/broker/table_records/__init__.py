"""What a broker has to know beside its messages, as records of the log."""
