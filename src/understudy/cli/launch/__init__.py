"""Launching and watching the processes of a cluster."""
