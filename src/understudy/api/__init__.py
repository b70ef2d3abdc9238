"""SHOWS. The state of a cluster, over REST, for commands and for programs.

Views turn the model into JSON; nothing is decided here.
"""
