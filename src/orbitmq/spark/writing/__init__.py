"""Writing rows as messages: what names a row, how rows become requests, and how these reach the brokers once."""
