"""Options of the Python environments of applications."""

from __future__ import annotations

from understudy.config.option import BOOLEAN, LONG_PERIOD, REQUIREMENTS, SHARED_PLACES, Option

PYTHON_REQUIREMENTS = Option(
    "python.requirements",
    REQUIREMENTS,
    None,
    "The text of a requirements file, one requirement a line: the application's processes run in "
    "an environment that has them. --requirements FILE gives the same as a file.",
    "the path of a file there",
)
FIND_LINKS = Option(
    "python.find-links",
    SHARED_PLACES,
    None,
    "Directories of wheels, on each host, and URLs of pages with links to them, in which an "
    "environment's requirements are looked for besides the package index.",
)
NO_INDEX = Option(
    "python.no-index",
    BOOLEAN,
    "false",
    "Whether an environment's requirements are looked for in python.find-links only.",
)
ENVIRONMENT_TIMEOUT = Option(
    "python.environment-timeout",
    LONG_PERIOD,
    "15 min",
    "How long the build of an environment may take. The application fails where it takes longer.",
)
