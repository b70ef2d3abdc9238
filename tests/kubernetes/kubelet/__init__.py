"""A kubelet without containers: a node of tests, which runs each container as a local process.

Kept as a real kubelet keeps it: registration and heartbeats (status and Lease), the commands of all
containers of a pod with their environment, ConfigMaps, Secrets, tokens and fields as variables and
files, probes, restarts with backoff, logs through the API server, `preStop`, SIGTERM, SIGKILL after
the grace period, removal of the object when all processes are dead. What a container has started is
killed with it, in whatever session.

Different:

- There are no images. `images.Image` says what the name of one stands for; a container with a
  ``command`` needs none.
- Processes share the machine: its files, users, process ids, and ports. Each pod has an address of
  its own in 127.0.0.0/8, on which it can listen beside the others.
- A volume is a directory below ``$POD_ROOT``, the mount path appended. Where command, arguments,
  working directory or a variable name a mount path, they get the path below ``$POD_ROOT`` (of
  ``/tmp``, only the directory itself: paths in it are the machine's); a
  program that knows a mount path from elsewhere must look there itself. No root is needed.
- When the kubelet ends, all its pods end with it, as if the node had lost its power. When it is
  stopped (SIGSTOP), they go on, as on a node that is cut off from the API server.
- A persistent volume is a directory of this machine (``hostPath`` or ``local``).
- Not there: ``exec``, containers that run beside the init containers, resource limits, security
  contexts, volumes that need a driver. A pod that needs one of these volumes says so and waits.
"""
