"""Records in bulk: bytes of a commit log or of a pull's answer become Arrow columns without an object per record.

Rules of this package
1. It needs numpy and pyarrow, and nothing of Spark, the client or the broker. Who does not ask for columns imports neither.
2. Buffers belong to the caller and are not changed; columns may share their memory.
"""
