"""`schedule`: rows of any data frame become timer messages."""
