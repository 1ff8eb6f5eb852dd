"""HTTP/2 for a server, without input or output: `hpack` reads and writes lists of header fields, with `huffman` and `static_table`."""
