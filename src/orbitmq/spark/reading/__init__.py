"""Reading topics into Spark: which offsets a batch covers, how they become partitions, and how a partition is pulled."""
