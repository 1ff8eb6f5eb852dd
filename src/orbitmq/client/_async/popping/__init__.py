"""POP consumption: asking for messages, renewing what is held, acknowledging."""
