"""Examples below the help text of each command; `tests/house` holds their options against it."""

from __future__ import annotations

from typing import Any

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run-application": (
        "understudy run-application app.py an-argument",
        "understudy run-application --master spark://host:7077 --py-files lib.zip app.py",
        "understudy run-application -m package.module",
        "understudy run-application -t kubernetes-application -D kubernetes.cluster-id=flights "
        "local:///opt/app/etl.py",
        "understudy run-application -D high-availability.cluster-id=nightly --run-id monday app.py",
    ),
    "jobmanager": (
        "understudy jobmanager -D high-availability.cluster-id=nightly app.py",
        "understudy jobmanager -D high-availability.cluster-id=nightly    (a standby)",
    ),
    "taskmanager": ("understudy taskmanager -D high-availability.cluster-id=nightly",),
    "check": (
        "understudy check app.py an-argument",
        "understudy check --master spark://host:7077 -m package.module",
    ),
    "list": ("understudy list", "understudy list --json"),
    "info": ("understudy info 3f1c",),
    "cancel": ("understudy cancel 3f1c",),
    "result": ("understudy result monday --json",),
    "logs": ("understudy logs -f 3f1c",),
    "ps": ("understudy ps", "understudy ps --json"),
    "checkpoints": ("understudy checkpoints board",),
    "savepoint": ("understudy savepoint board /data/savepoints",),
    "stop": ("understudy stop --savepoint board /data/savepoints",),
    "artifacts list": ("understudy artifacts list --json",),
    "artifacts upload": ("understudy artifacts upload etl.py",),
    "artifacts delete": ("understudy artifacts delete 3f1c0d…_etl.py",),
    "destroy": ("understudy destroy -D high-availability.cluster-id=nightly --yes",),
    "token": (
        'curl -H "Authorization: Bearer $(understudy token)" https://host:8081/overview',
        "understudy token --new alice >> viewers",
    ),
    "cleanup retry": ("understudy cleanup retry 3f1c",),
    "cleanup abandon": ("understudy cleanup abandon 3f1c",),
    "run": (
        "understudy run app.py an-argument",
        "understudy run -d --run-id monday --py-files lib.zip app.py",
        "understudy run --target https://host:8081 --token-file alice.token app.py",
        "understudy run --target local app.py",
        "understudy run -t kubernetes-session -D kubernetes.cluster-id=shared app.py",
    ),
    "session start": (
        "understudy session start",
        "understudy session start --taskmanagers 2 --slots 4",
        "understudy session start --config-dir conf",
        "understudy session start -t kubernetes-session -D kubernetes.cluster-id=shared",
    ),
    "session stop": ("understudy session stop",),
    "session status": ("understudy session status --json",),
    "cluster start": ("understudy cluster start --config-dir conf app.py",),
    "cluster stop": ("understudy cluster stop --config-dir conf",),
    "cluster status": ("understudy cluster status --config-dir conf",),
    "zookeeper start": ("understudy zookeeper start",),
    "zookeeper stop": ("understudy zookeeper stop",),
    "zookeeper status": ("understudy zookeeper status",),
    "completion": (
        'eval "$(understudy completion bash)"',
        'eval "$(understudy completion zsh)"',
        "understudy completion fish > ~/.config/fish/completions/understudy.fish",
    ),
}
"""By command; each example is a line."""


def add(name: str, command: Any) -> None:
    """Put the examples of a command, or of the commands of a group, below the help text."""
    for inner, one in getattr(command, "commands", {}).items():
        add(f"{name} {inner}", one)
    if name in EXAMPLES:
        # An empty line between two keeps them on lines of their own.
        command.epilog = "\n\n".join(("Examples:", *EXAMPLES[name]))
