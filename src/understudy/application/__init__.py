"""The process of ``main``: the public environment, and what runs the script."""
