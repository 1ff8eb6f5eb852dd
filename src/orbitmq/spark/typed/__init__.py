"""Payloads with types: bodies as JSON, Avro or Protobuf become a column of a struct, and back.

A body that cannot be decoded is a row as well, with the reason and its bytes in columns of their own.

Rules of this package
1. Decoding is pure: bytes and a type in, columns out. Files and registries are asked by the driver, what they say travels.
2. What a row becomes never depends on the rows beside it.
3. Libraries of a format are imported where it is used; they come with the extra `typed`.
"""
