"""The commands, and the composition root that puts the packages together."""
