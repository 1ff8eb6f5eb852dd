"""What is pending, searchable: by message id, by key, by due time, and counted."""
