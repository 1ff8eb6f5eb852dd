"""Decisions of consuming without a network: shares, offsets, what may be pulled and what is unsettled."""
