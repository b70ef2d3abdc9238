"""What every Spark session of ours is started with, and plain PySpark inside ``main``."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyspark.core.context
import pyspark.java_gateway

from understudy.spark.jvm import LOG_MARK, start_gateway, use_gateway

LOG_SETTINGS = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = {mark}%d{{yy/MM/dd HH:mm:ss}} %p %c{{1}}: %m%n%xEx{{separator(\\n{mark})}}
logger.quiet.name = org.apache.spark.util.Utils
logger.quiet.level = error
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
"""  # noqa: E501 -- one property, one line


def preload() -> None:
    """Import what takes a process of ``main`` long to import."""
    for name in ("pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types"):
        importlib.import_module(name)


def session_conf(given: Mapping[str, str], scratch: str, application: str) -> dict[str, str]:
    """Return what a driver's session is started with: what was given, over our defaults."""
    conf = {"spark.master": "local[*]", "spark.app.name": application, "spark.ui.port": "0"}
    conf.update(_kept_together(given, scratch))
    if conf["spark.master"].startswith("local"):
        conf.setdefault("spark.driver.host", "127.0.0.1")
        conf.setdefault("spark.driver.bindAddress", "127.0.0.1")
    return conf


def set_submit_arguments(conf: Mapping[str, str], scratch: str = "") -> None:
    """Let a ``SparkSession`` that ``main`` itself makes start with these settings.

    It is started like a driver's JVM: it dies with the process of ``main``, and keeps its files
    in ``scratch`` (empty: where Spark would).
    """
    arguments = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    original: Callable[..., Any] = pyspark.java_gateway.launch_gateway

    def launch_gateway(conf: Any = None, popen_kwargs: Any = None) -> Any:
        settings = dict(conf.getAll()) if conf else {}
        submit_args = os.environ.get("PYSPARK_SUBMIT_ARGS", "").removesuffix("pyspark-shell")
        if scratch:
            Path(scratch).mkdir(parents=True, exist_ok=True, mode=0o700)
            settings = _kept_together(settings, scratch)
        use_gateway(start_gateway(settings, (), submit_args, scratch or None))
        return original(conf, popen_kwargs)

    pyspark.java_gateway.launch_gateway = launch_gateway
    pyspark.core.context.launch_gateway = launch_gateway  # type: ignore[attr-defined]


def _kept_together(given: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return settings that keep files in one place, and Spark's log apart from what jobs print."""
    conf = {"spark.ui.showConsoleProgress": "false", "spark.local.dir": scratch, **given}
    settings = Path(scratch) / "log4j2.properties"
    level = conf.pop("spark.log.level", "WARN").lower()
    settings.write_text(LOG_SETTINGS.format(level=level, mark=LOG_MARK))
    ours = f"-Dlog4j2.configurationFile={settings} -Djava.io.tmpdir={shlex.quote(scratch)}"
    theirs = conf.get("spark.driver.extraJavaOptions", "")
    conf["spark.driver.extraJavaOptions"] = f"{ours} {theirs}".strip()
    return conf
