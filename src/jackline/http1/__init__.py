"""HTTP/1.1 as bytes, for gateway, upstream and simulator: parse and render requests and responses.

Rules: (1) no I/O: bytes go in, parsed values and bytes come out; (2) all memory is bounded; (3) a
message whose end two parsers could find at different places is refused.
"""
