"""Failures of a real ZooKeeper ensemble and of its clients, and a checker over what happened.

`cluster` starts the ensemble and the processes, `faults` knows each kind of failure, `run` draws
them and waits until all is well again, `checker` judges the history that all have written.
"""
