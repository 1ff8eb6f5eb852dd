"""The rig of the interoperability tests and the benchmarks: brokers and clients of several makers, driven as processes.

It shares no code with `orbitmq` on purpose. What it reads from the wire and from disk it decodes itself, so that a
mistake in our codecs cannot hide from the tests that use it.
"""
