"""The ZooKeeper backend: a register of znodes, sessions, and the latch that elections wait in."""
