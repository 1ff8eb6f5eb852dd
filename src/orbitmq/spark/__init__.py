"""orbitmq in PySpark: the data sources `orbitmq` and `orbitmq-log`.

The formats need no registration: Spark finds them by the packages `pyspark_orbitmq` and `pyspark_orbitmq_log`.

Rules of this package
1. Importing it, or a data source, costs next to nothing: numpy, pyarrow and the client are imported where they are used.
2. Nothing touches the JVM or a SparkContext, so that all of it works through Spark Connect as well.
3. Readers, writers and partitions travel between processes: they hold values, never a connection.
"""
