"""The version of this package: the one place, which the build reads too.

Not asked of the installed distribution: `importlib.metadata` takes a third of the start of a short
process.
"""

VERSION = "0.1.0"
