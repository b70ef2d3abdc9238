"""What every process of ours is made of: guardian, liveness lock, channels, code layouts.

A module lives here when two of the rooms above need it."""
