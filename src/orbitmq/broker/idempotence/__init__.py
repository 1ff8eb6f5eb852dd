"""Sends that are stored once: how they are named, remembered, kept over a crash, and answered."""
