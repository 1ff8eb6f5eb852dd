"""Commands about messages: show, send, tail, redrive, and transactions."""
