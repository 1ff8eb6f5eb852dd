"""HTTP/2 for a server, without input or output: bytes in, events out.

`connection` is one client's connection: `frames` on the wire, `settings` of both ends, header blocks (one may be an `open_block`) that
become requests where `request_fields` finds them sound, `stream_states`, `sending` through the peer's windows, a `budget` against floods;
it tells `events`. `hpack` reads and writes lists of header fields, with `huffman` and `static_table`.
"""
