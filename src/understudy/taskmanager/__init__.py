"""The TaskManager: slots, and the pool of drivers that serve them."""
