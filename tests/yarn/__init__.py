"""Jobs on a real YARN: a ResourceManager, a NodeManager, and what happens to their containers."""
