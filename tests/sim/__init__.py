"""Whole clusters in virtual time: the shipped code, one seed, every fault, and its story.

A world (`world.World`) holds hosts and processes (`hosts`), what connects them (`wire`), what
outlives them (`effects`), what users would run (`workers`, `program`), what goes wrong
(`program.Profile`, `faults`), and who watches (`invariants`).
"""
