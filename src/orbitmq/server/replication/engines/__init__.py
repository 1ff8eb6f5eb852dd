"""Engines that keep the view of a replicated group: what is asked of one (`group_engine`), and adapters that ask."""
