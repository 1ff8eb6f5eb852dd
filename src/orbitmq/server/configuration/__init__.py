"""Where settings come from, what they mean, and what becomes of a change while a server runs."""
