"""The far table as Spark jobs see it: its catalog behind a few calls, its files, and what tasks report."""
