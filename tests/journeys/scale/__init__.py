"""Many of everything, and idleness: real processes and sockets, with bounds that are generous."""
