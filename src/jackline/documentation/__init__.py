"""The project's pages in the browser: rendered from Markdown, searched without a network.

Rules: (1) the Markdown files are the only source; nothing is built before it is wanted; (2) pages
load nothing from elsewhere, and their only script is the search; (3) the gateway serves the same
bytes that `docs/make_site.py` writes.
"""
