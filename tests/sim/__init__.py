"""Whole clusters in virtual time: the shipped code, one seed, every fault, and its story.

A world (`world.World`) holds hosts and processes (`hosts`), what connects them (`wire`), what
outlives them (`effects`), what users would run (`workers`, `program`), who asks over REST
(`clients`), who meddles (`person`) and who deploys (`deploying`), what goes wrong
(`program.Profile`, `blows`), and who watches (`invariants`, `ending`). It is named by its seed and
what is taken out of it (`spec`); one that fails is made smaller, and kept (`shrink`).
"""
