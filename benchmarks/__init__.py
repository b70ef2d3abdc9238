"""What high availability costs and how long a takeover takes: `make bench`, `make soak`.

Each module but the shared ones (`clusters`, `many_jobs`, `figures`, `charts`, `report`, `counting`,
`noise`) measures one thing and returns a `Chapter`. A figure stands beside what it is compared
with, and both are of the same run on the same machine: a ratio can be carried to another machine,
seconds cannot.
"""
