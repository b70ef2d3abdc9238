"""Crashes at every write, and at every system call of what writes files.

`quiet` is a whole cluster of the shipped code in which nothing goes wrong by itself; `points`
counts its writes, and strikes at the one that a test names; `judging` says what must come of it.
"""
