"""DECIDES. What to do next, as pure functions over frozen values.

Nothing here waits, reads a clock, draws a random number, logs, or touches a file, a socket or a
process; time comes in as an argument. A table of inputs and outputs can test each function.
"""
