"""The JobManager: dispatcher, applications, job masters, resource manager, coordinators, cleanup.

The room imports neither the TaskManager, nor the driver, nor the process of ``main``."""
