"""A SparkContext that has not started by chance alone is started again, a few times."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from understudy.spark.contexts import STARTS, start
from understudy.spark.managers import Unknown
from understudy.spark.managers.standalone import Standalone
from understudy.spark.managers.yarn import Yarn

FAILED = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n: "
ATTACHED = (
    "\tat org.apache.spark.ui.ServerInfo.addHandler(JettyUtils.scala:505)\n"
    "\tat org.apache.spark.ui.SparkUI.$anonfun$attachAllHandlers$2(SparkUI.scala:73)\n"
)
NO_FILTER = (
    f"{FAILED}java.lang.IllegalStateException: No filter named "
    "org.apache.spark.deploy.yarn.AmIpFilter\n"
    "\tat org.sparkproject.jetty.ee10.servlet.ServletHandler.updateMappings(ServletHandler.java)\n"
)
MODIFIED = (
    f"{FAILED}java.util.ConcurrentModificationException\n"
    f"\tat org.sparkproject.jetty.ee10.servlet.ServletHandler.initialize(ServletHandler.java:687)\n"
    f"{ATTACHED}"
)
SETTINGS = f"{FAILED}java.lang.IllegalArgumentException: Required executor memory (99999 MB)"
AWAY = f"{FAILED}java.net.ConnectException: Connection refused"

YARN = Yarn(None, {"spark.master": "yarn"})
STANDALONE = Standalone(None, {"spark.master": "spark://127.0.0.1:7077"})


class Context:
    """Fails to start as often as there are errors; then it starts."""

    def __init__(self, *errors: str) -> None:
        self._errors = list(errors)
        self.tries = 0

    def make(self) -> str:
        """Start, or fail."""
        self.tries += 1
        if self._errors:
            raise Py4JError(self._errors.pop(0))
        return "started"


@pytest.mark.parametrize("error", [NO_FILTER, MODIFIED])
def test_a_start_that_the_filter_of_yarn_has_spoilt_is_tried_again(error: str) -> None:
    context = Context(error, error)

    assert start(context.make, YARN.may_start_again) == "started"
    assert context.tries == STARTS


def test_what_fails_each_time_is_raised() -> None:
    context = Context(*[NO_FILTER] * STARTS)

    with pytest.raises(Py4JError, match="No filter named"):
        start(context.make, YARN.may_start_again)
    assert context.tries == STARTS


@pytest.mark.parametrize("error", [SETTINGS, AWAY])
def test_any_other_error_is_raised_at_once(error: str) -> None:
    context = Context(error)

    with pytest.raises(Py4JError) as raised:
        start(context.make, YARN.may_start_again)
    assert str(raised.value) == error
    assert context.tries == 1


@pytest.mark.parametrize("manager", [STANDALONE, Unknown()])
def test_other_clusters_have_no_such_filter(manager: Standalone | Unknown) -> None:
    assert [manager.may_start_again(Py4JError(error)) for error in (NO_FILTER, MODIFIED)] == [
        False,
        False,
    ]
