"""Run another agent program as a child process, and resume it where it stopped.

Rules: (1) never two processes in one session; (2) finished work of the program is never requested
again; (3) an ending is judged by what was seen, not by the program's own word for it; (4) after a
cancellation no process is left.
"""
