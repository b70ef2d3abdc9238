"""The guardian as a program: real processes, real signals, the kernel's word."""
