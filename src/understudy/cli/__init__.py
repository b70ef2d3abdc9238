"""The commands; here the rooms are put together (the composition root)."""
