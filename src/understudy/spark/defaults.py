"""The settings of every Spark session that we start, and of plain PySpark inside ``main``."""

from __future__ import annotations

import importlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyspark.core.context
import pyspark.java_gateway

from understudy.errors import ConfigurationError
from understudy.spark import properties
from understudy.spark.addresses import address_settings
from understudy.spark.jvm import LOG_MARK, spark_home, start_gateway, use_gateway
from understudy.spark.masters import refuse_others
from understudy.spark.pods import pod_settings

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
    """Import the slow modules of PySpark before ``main`` needs them."""
    for name in ("pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types"):
        importlib.import_module(name)


def session_conf(given: Mapping[str, str], scratch: str, application: str) -> dict[str, str]:
    """Return a driver's session settings: the given ones, over the defaults of Understudy.

    Spark's ``spark-defaults.conf`` on this host ranks between the two. Raises `UsageError` where
    they, or this host's environment, would put the driver elsewhere.
    """
    conf = {"spark.master": "local[*]", "spark.app.name": application, "spark.ui.port": "0"}
    conf.update(_kept_together({**_spark_defaults(), **given}, scratch))
    refuse_others(conf, os.environ)
    conf.update(pod_settings(conf, os.environ, scratch))
    return {**conf, **address_settings(conf, os.environ)}


def set_submit_arguments(
    conf: Mapping[str, str], scratch: str = "", opened: Callable[[], None] | None = None
) -> None:
    """Make a ``SparkSession`` that ``main`` itself creates start with these settings.

    Its JVM starts like a driver's: it dies with the process of ``main``, and writes its files to
    ``scratch`` (empty: Spark's default). ``opened`` is called when ``main`` starts the JVM.
    """
    arguments = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    original: Callable[..., Any] = pyspark.java_gateway.launch_gateway

    def launch_gateway(conf: Any = None, popen_kwargs: Any = None) -> Any:
        if opened:
            opened()
        given = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
        submitted, flags = settings_and_flags(given)
        settings = {**_spark_defaults(), **(dict(conf.getAll()) if conf else {}), **submitted}
        if scratch:
            Path(scratch).mkdir(parents=True, exist_ok=True, mode=0o700)
            settings = _kept_together(settings, scratch)
            settings.update(pod_settings(settings, os.environ, scratch))
        settings.update(address_settings(settings, os.environ))
        use_gateway(start_gateway(settings, (), flags, scratch or None))
        return original(conf, popen_kwargs)

    pyspark.java_gateway.launch_gateway = launch_gateway
    pyspark.core.context.launch_gateway = launch_gateway  # type: ignore[attr-defined]


def settings_and_flags(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Split arguments for ``spark-submit`` into settings and other arguments.

    On a command line, every user of the host could read the settings.
    """
    submitted: dict[str, str] = {}
    from_file: dict[str, str] = {}
    flags: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, separator, value = argument.partition("=")
        if flag not in _SETTING_FLAGS:
            if argument != "pyspark-shell":
                flags.append(argument)
            continue
        value = value if separator else next(rest, "")
        if flag == "--properties-file":
            from_file = _read(Path(value))
        elif setting := _SETTING_FLAGS[flag]:
            submitted[setting] = value
        else:
            key, _, text = value.partition("=")
            submitted[key] = text
    return {**from_file, **submitted}, flags


_SETTING_FLAGS = {
    "--conf": "",
    "-c": "",
    "--properties-file": "",
    "--master": "spark.master",
    "--driver-java-options": "spark.driver.extraJavaOptions",
}


def _spark_defaults() -> dict[str, str]:
    return _read(properties.defaults_file(spark_home(), os.environ), missing={})


def _read(path: Path, missing: Mapping[str, str] | None = None) -> dict[str, str]:
    try:
        return properties.read(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        if missing is None:
            raise ConfigurationError(f"{path}: no such file of Spark's settings") from error
        return dict(missing)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: Spark's settings cannot be read: {error}") from error


def _kept_together(given: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return settings that put all files into ``scratch`` and mark the lines of Spark's log."""
    conf = {"spark.ui.showConsoleProgress": "false", "spark.local.dir": scratch, **given}
    settings = Path(scratch) / "log4j2.properties"
    level = conf.pop("spark.log.level", "WARN").lower()
    settings.write_text(LOG_SETTINGS.format(level=level, mark=LOG_MARK))
    ours = f"-Dlog4j2.configurationFile={settings} -Djava.io.tmpdir={shlex.quote(scratch)}"
    theirs = conf.get("spark.driver.extraJavaOptions", "")
    conf["spark.driver.extraJavaOptions"] = f"{ours} {theirs}".strip()
    return conf
