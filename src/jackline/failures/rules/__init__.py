"""The tables that know how failures read, one file per family.

Rules: (1) no message text is matched outside this folder and `resets.py`; (2) order inside a table
is meaning: the first rule that holds decides.
"""
