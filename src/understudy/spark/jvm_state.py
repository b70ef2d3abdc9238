"""What a job may have changed in the JVM that jobs share: looked at before and after, in one call.

Spark has a compiler of Java with it, which it makes its own queries fast with: a driver has it
compile the look once, at its start. What is not looked at here (static fields of libraries, say),
one job may leave to the next. Neither are daemon threads: Spark, Hadoop and the libraries that jobs
use start pools of them with their first use, and keep them for later jobs, as they are meant to.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

NAMED_MAX = 3
"""Of many names, a sentence has the first."""

UNKNOWN = "what is left in this JVM cannot be seen: Spark's compiler does not take the look"

_FIELD, _ENTRY = "\x01", "\x02"
"""What ends a name, and an entry."""

_log = logging.getLogger(__name__)

_THE_JVM = r"""
java.util.Iterator entries = System.getProperties().entrySet().iterator();
while (entries.hasNext()) {
    java.util.Map.Entry entry = (java.util.Map.Entry) entries.next();
    String name = String.valueOf(entry.getKey());
    Object value = entry.getValue();
    if (wide || !name.startsWith("spark.")) {
        // What is no string may change its hash code by itself.
        out.append("property:").append(name).append('\001').append(value instanceof String
            ? value.hashCode() : System.identityHashCode(value)).append('\002');
    }
}
Object handler = Thread.getDefaultUncaughtExceptionHandler();
out.append("handler\001").append(System.identityHashCode(handler)).append('\002');
out.append("zone\001").append(java.util.TimeZone.getDefault().getID()).append('\002');
out.append("locale\001").append(java.util.Locale.getDefault().toString()).append(' ')
    .append(java.util.Locale.getDefault(java.util.Locale.Category.DISPLAY).toString()).append(' ')
    .append(java.util.Locale.getDefault(java.util.Locale.Category.FORMAT).toString())
    .append('\002');
"""

_THE_CONTEXT = r"""
if (wide) {
    ThreadGroup group = Thread.currentThread().getThreadGroup();
    while (group.getParent() != null) {
        group = group.getParent();
    }
    Thread[] threads = new Thread[2 * group.activeCount() + 16];
    int count = group.enumerate(threads);
    for (int i = 0; i < count; ++i) {
        if (threads[i].isDaemon() || !threads[i].isAlive()) {
            continue;
        }
        boolean ours = false;
        StackTraceElement[] frames = threads[i].getStackTrace();
        for (int j = 0; j < frames.length; ++j) {
            ours = ours || frames[j].getClassName().startsWith("py4j.");
        }
        if (!ours && frames.length > 0) {
            out.append("thread:").append(threads[i].getName()).append('\001')
                .append(threads[i].getId()).append('\002');
        }
    }
    java.util.Iterator listeners = context.listenerBus().listeners().iterator();
    while (listeners.hasNext()) {
        Object listener = listeners.next();
        // Spark's own come with what is looked at already, as sessions and queries.
        if (!listener.getClass().getName().startsWith("org.apache.spark.")) {
            out.append("listener:").append(listener.getClass().getName()).append('\001')
                .append(System.identityHashCode(listener)).append('\002');
        }
    }
    org.apache.spark.sql.internal.SharedState shared = session.sharedState();
    out.append("files\001").append(String.valueOf(context.listFiles()))
        .append(String.valueOf(context.listArchives())).append('\002');
    out.append("jars\001").append(String.valueOf(context.listJars())).append('\002');
    out.append("checkpoints\001").append(String.valueOf(context.getCheckpointDir()))
        .append('\002');
    out.append("cached\001").append(shared.cacheManager().isEmpty()).append(' ')
        .append(context.getPersistentRDDs().size()).append('\002');
    out.append("views\001")
        .append(String.valueOf(shared.globalTempViewManager().listViewNames("*")))
        .append('\002');
    out.append("queries\001").append(shared.activeStreamingQueries().size()).append('\002');
    out.append("hadoop\001")
        .append(context.hadoopConfiguration().getPropsWithPrefix("").hashCode()).append('\002');
    if (ownCatalog) {
        org.apache.spark.sql.catalyst.catalog.ExternalCatalog catalog =
            shared.externalCatalog();
        scala.collection.immutable.Seq databases = catalog.listDatabases();
        out.append("databases\001").append(String.valueOf(databases)).append('\002');
        out.append("tables\001");
        for (int i = 0; i < databases.size(); ++i) {
            String database = (String) databases.apply(i);
            scala.collection.immutable.Seq tables = catalog.listTables(database);
            if (!tables.isEmpty()) {
                out.append(database).append(String.valueOf(tables));
            }
        }
        out.append('\002').append("functions\001");
        for (int i = 0; i < databases.size(); ++i) {
            String database = (String) databases.apply(i);
            scala.collection.immutable.Seq functions = catalog.listFunctions(database, "*");
            if (!functions.isEmpty()) {
                out.append(database).append(String.valueOf(functions));
            }
        }
        out.append('\002');
    }
}
"""

_SCRIPT = f"""
StringBuilder out = new StringBuilder();
if (context.isStopped()) {{
    return "stopped\001\002";
}}
{_THE_JVM}
{_THE_CONTEXT}
return out.toString();
"""

_PARAMETERS = {
    "context": "org.apache.spark.SparkContext",
    "session": "org.apache.spark.sql.classic.SparkSession",
    "wide": None,
    "ownCatalog": None,
}

_LEFT = {
    "zone": "it changed the JVM's default time zone",
    "locale": "it changed the JVM's default locale",
    "handler": "it changed the JVM's default handler of uncaught exceptions",
    "files": "it added files to the SparkContext",
    "jars": "it added jars to the SparkContext",
    "checkpoints": "it changed the SparkContext's checkpoint directory",
    "cached": "it left cached data",
    "views": "it left global views",
    "queries": "it left streaming queries",
    "hadoop": "it changed the Hadoop configuration",
    "databases": "it left databases",
    "tables": "it left tables",
    "functions": "it left functions",
}
"""What it means that one of these is another."""


@dataclass(frozen=True)
class JvmSnapshot:
    """What was seen of a JVM."""

    entries: dict[str, str]
    stopped: bool = False
    unknown: bool = False

    def differences(self, before: JvmSnapshot) -> list[str]:
        """Say what is not as it was, in words that follow a driver's name."""
        if self.unknown or before.unknown:
            return [UNKNOWN]
        if self.stopped:
            return ["it stopped the SparkContext"]
        found = [reason for key, reason in _LEFT.items() if _differ(self, before, key)]
        properties = _named("property:", self, before) + _named("property:", before, self)
        threads = _named("thread:", self, before)
        listeners = _named("listener:", self, before)
        if listeners:
            found.append(f"it left listeners of Spark: {_some(listeners)}")
        if properties:
            found.append(f"it changed system properties of the JVM: {_some(properties)}")
        if threads:
            found.append(f"it left threads in the JVM: {_some(threads)}")
        return found

    def settles(self, before: JvmSnapshot) -> bool:
        """Say whether threads are left, which may be about to end: a connection's, for instance."""
        return any(one.startswith("it left threads") for one in self.differences(before))


class JvmState:
    """Looks at the JVM of one SparkContext."""

    def __init__(self, session: SparkSession, *, shared: bool) -> None:
        """``shared``: the context serves more than one job, so its own things are looked at too."""
        self._look: JavaObject | None = None
        try:
            self._prepare(session, shared)
        except Py4JError as error:
            _log.warning("%s; each driver serves one job: %s", UNKNOWN, error)

    def _prepare(self, session: SparkSession, shared: bool) -> None:
        context = session.sparkContext
        jvm, gateway = context._jvm, SparkContext._gateway
        assert jvm is not None
        assert gateway is not None
        assert context._jsc is not None
        in_memory = context.getConf().get("spark.sql.catalogImplementation", "in-memory")
        values = (
            context._jsc.sc(),
            session._jsparkSession,
            shared,
            shared and in_memory == "in-memory",
        )
        names = gateway.new_array(jvm.java.lang.String, len(values))
        types = gateway.new_array(jvm.java.lang.Class, len(values))
        self._values = gateway.new_array(jvm.java.lang.Object, len(values))
        for index, (name, value) in enumerate(zip(_PARAMETERS, values, strict=True)):
            kind = _PARAMETERS[name]
            names[index] = name
            types[index] = jvm.java.lang.Class.forName(kind) if kind else jvm.java.lang.Boolean.TYPE
            self._values[index] = value
        look = jvm.org.codehaus.janino.ScriptEvaluator()
        look.setReturnType(jvm.java.lang.Class.forName("java.lang.String"))
        look.setParameters(names, types)
        look.cook(_SCRIPT)
        self._look = look

    def look(self) -> JvmSnapshot:
        """Look once."""
        if self._look is None:
            return JvmSnapshot({}, unknown=True)
        text: str = self._look.evaluate(self._values)
        entries: dict[str, str] = {}
        for entry in text.split(_ENTRY)[:-1]:
            name, _, value = entry.partition(_FIELD)
            # Several threads may have one name.
            entries[name] = f"{entries[name]} {value}" if name in entries else value
        return JvmSnapshot(entries, stopped="stopped" in entries)


def _differ(now: JvmSnapshot, before: JvmSnapshot, key: str) -> bool:
    return now.entries.get(key) != before.entries.get(key)


def _named(prefix: str, now: JvmSnapshot, before: JvmSnapshot) -> list[str]:
    """Return the names of what is new, or another."""
    return sorted(
        name.removeprefix(prefix)
        for name, value in now.entries.items()
        if name.startswith(prefix) and not _within(value, before.entries.get(name))
    )


def _within(value: str, before: str | None) -> bool:
    return before is not None and set(value.split(" ")) <= set(before.split(" "))


def _some(names: list[str]) -> str:
    unique = sorted(set(names))
    shown = ", ".join(unique[:NAMED_MAX])
    return shown if len(unique) <= NAMED_MAX else f"{shown} and {len(unique) - NAMED_MAX} more"
