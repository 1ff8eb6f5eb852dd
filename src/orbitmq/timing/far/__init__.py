"""The far tier: timer messages that are due later than the wheel looks, kept as Parquet files by due date."""
