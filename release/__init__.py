"""What makes a release: wheel and sdist that anybody can rebuild, hashes, a bill of materials."""
