"""Transactions: half messages, what decides about them, and the checks that ask their producers."""
