"""Bytes to values and back, without input or output: records, properties, ids, filters, remoting."""
