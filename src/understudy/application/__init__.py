"""The process of ``main``: the public environment, and the program that runs the script."""
