"""Commands that run jobs on Spark, and those about their archives."""
