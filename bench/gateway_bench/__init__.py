"""What bench/gateway.py measures with: peers, upstream, load, and the judging of its figures.

Rules: (1) the upstream and the load are separate programs, so that they never share a process with
what is measured; (2) nothing here imports the package that it measures.
Not here: the package's own tests.
"""
