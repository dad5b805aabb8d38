"""A listener of a test that proves itself as the user's own gateway does."""

from __future__ import annotations

import socket

from jackline.gateway_proof import nonce_in, proof, socket_address
from jackline.private_files import installation_key


def proof_for(line: socket.socket, query: bytes) -> bytes:
    """The true answer to a request for proof with this query."""
    nonce = nonce_in(query)
    assert nonce is not None, "clients ask for proof before anything else"
    return proof(installation_key(), nonce, socket_address(line.getsockname())).encode()


def prove_first(line: socket.socket) -> None:
    """Hear a client's request for proof, and answer it; the request itself comes next."""
    told = proof_for(line, line.recv(65536).partition(b"?")[2].partition(b" ")[0])
    line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
