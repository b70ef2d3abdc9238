"""The version of the installed package."""

from importlib.metadata import PackageNotFoundError, version


def _installed() -> str:
    try:
        return version("understudy")
    except PackageNotFoundError:
        return "0+unknown"


VERSION = _installed()
