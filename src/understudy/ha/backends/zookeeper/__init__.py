"""The ZooKeeper backend: a register of znodes, sessions, and the latch for elections."""
