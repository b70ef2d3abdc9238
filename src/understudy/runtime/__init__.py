"""DOES. The processes of a cluster: one inbox and one task each, asking core and then obeying.

Time, coordination, storage, the wire and processes reach these modules as arguments, so that the
shipped code also runs in one process, under virtual time, with faults drawn from a seed.
"""
