"""A real Kubernetes control plane for tests, and what tests do to it.

Lives here: the program (`plane/`, in Go) and its build, the processes that it becomes
(`control_plane`), a kubelet without containers (`kubelet/`), faults between a client and the API
server (`faults`), the fast fake of an API server (`fake`), and tests of all these. Does not live
here: tests of Understudy on Kubernetes, which take the fixtures from here.
"""
