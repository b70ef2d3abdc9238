"""The parts of every process of ours: guardian, liveness lock, channels, code layouts.

A module belongs here when two of the rooms above need it."""
