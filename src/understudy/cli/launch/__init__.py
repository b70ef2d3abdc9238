"""Launching processes of a cluster, and watching them."""
