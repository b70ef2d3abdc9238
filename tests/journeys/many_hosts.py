"""Several hosts on this machine: a network namespace, a home and a state directory for each.

What stands in for ssh runs a command on a host without a trace of who asks: no environment, and
none of the files that lie on the first host only. All hosts share one directory, as over NFS.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.journeys import harness
from tests.support.namespaces import Network

OPTIONS = {
    **dict(option.removeprefix("-D ").split("=", 1) for option in harness.IMPATIENT),
    **dict(option.split("=", 1) for option in harness.LASTING if option != "-D"),
    "high-availability.type": "zookeeper",
    "high-availability.cluster-id": "many",
    "taskmanager.driver.type": "session-less",
    "taskmanager.spare-drivers": "0",
}


class Hosts:
    """The hosts of a test. The first one has the application and the configuration."""

    def __init__(self, place: Path, network: Network, quorum: str) -> None:
        self.place = place
        self.network = network
        self.names = network.hosts
        self.first = self.names[0]
        self.shared = place / "shared"
        self.shared.mkdir()
        self.private = place / "of-the-first"
        self.conf = self.private / "conf"
        self.conf.mkdir(parents=True)
        for name in self.names:
            self.home(name).mkdir(parents=True)
        secret = self.shared / "secret"
        secret.write_text("a secret of many words")
        secret.chmod(0o600)
        self.settings = {
            **OPTIONS,
            "high-availability.zookeeper.quorum": quorum,
            "high-availability.storageDir": str(self.shared / "ha"),
            "security.secret-file": str(secret),
            "env.ssh.command": str(self._ssh()),
        }
        self.configure()
        self.app = harness.put_app(self.private, "many.py")

    def home(self, name: str) -> Path:
        """Return the home of a host."""
        return self.place / "hosts" / name

    def state(self, name: str) -> Path:
        """Return where the processes of a host keep their state."""
        return self.home(name) / "state" / "understudy"

    def address(self, name: str) -> str:
        """Return at which address the others reach a host."""
        return self.network.address(name)

    def configure(self, **changes: str) -> None:
        """Write config.yaml."""
        text = "".join(f"{key}: '{value}'\n" for key, value in (self.settings | changes).items())
        (self.conf / "config.yaml").write_text(text)

    def ask_for(self, masters: list[str], workers: list[str]) -> None:
        """Write conf/masters and conf/workers."""
        for name, hosts in (("masters", masters), ("workers", workers)):
            (self.conf / name).write_text("".join(f"{self.address(host)}\n" for host in hosts))

    def cut(self, name: str, *, off: bool) -> None:
        """Let a host be out of reach for ssh, or within it again."""
        mark = self.home(name) / "down"
        mark.touch() if off else mark.unlink()

    def hide(self, name: str, directory: Path) -> None:
        """Let what is started on a host from now on find a directory empty: it is not mounted."""
        (self.home(name) / "hidden").write_text(str(directory))

    def command(
        self, *arguments: str, host: str | None = None, code: int | None = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of understudy on a host, by default on the first; check its exit code."""
        name = host or self.first
        done = subprocess.run(
            [*self.network.prefix(name), sys.executable, "-m", "understudy", *arguments],
            cwd=self.private if name == self.first else self.home(name),
            env=self._environment(name),
            capture_output=True,
            text=True,
            timeout=2 * harness.PATIENCE_S,
            check=False,
        )
        if code is not None:
            said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}\n{self.logs()}"
            assert done.returncode == code, f"{arguments}: {done.returncode}\n{said}"
        return done

    def cluster(self, verb: str, *more: str, code: int | None = 0) -> str:
        """Run ``understudy cluster`` on the first host; return what it says."""
        done = self.command("cluster", verb, "--config-dir", str(self.conf), *more, code=code)
        return done.stdout + done.stderr

    def start(self, code: int | None = 0) -> str:
        """Start what is missing of the cluster."""
        return self.cluster("start", str(self.app), str(self.shared), code=code)

    def connected(self) -> list[str]:
        """Return the options with which any host finds the cluster: all but what is a default."""
        keys = (
            "high-availability.type",
            "high-availability.cluster-id",
            "high-availability.zookeeper.quorum",
            "high-availability.storageDir",
            "security.secret-file",
        )
        return [word for key in keys for word in ("-D", f"{key}={self.settings[key]}")]

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file that the application writes; none if it is not there."""
        try:
            return (self.shared / name).read_text().splitlines()
        except FileNotFoundError:
            return []

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + harness.PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, f"{what}\n{self.logs()}"
            time.sleep(0.02)

    def processes(self, name: str) -> dict[int, str]:
        """Return what runs on a host of the cluster."""
        return harness.processes_of(self.home(name))

    def lose(self, name: str) -> None:
        """Let a host lose its power: all of it is killed, guardians first."""
        while found := self.processes(name):
            guardians = [pid for pid, line in found.items() if "guardian.py" in line]
            harness.kill([*guardians, *found])

    def logs(self) -> str:
        """Return the last lines of all processes, for the message of a failing test."""
        told = []
        for path in sorted(self.place.glob("hosts/*/state/understudy/logs/processes/*.log")):
            lines = path.read_text(errors="replace").splitlines()[-12:]
            told.append("\n".join([f"--- {path.name}", *(line[:300] for line in lines)]))
        return "\n".join(told)

    def close(self) -> None:
        """End all that runs on the hosts."""
        for name in self.names:
            for pid in self.processes(name):
                with_signal(pid)

    def _environment(self, name: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home(name)),
            "XDG_STATE_HOME": str(self.home(name) / "state"),
            "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
            "TMPDIR": str(self.home(name)),
            "XDG_RUNTIME_DIR": "",
            "PYTHONUNBUFFERED": "1",
        }

    def _ssh(self) -> Path:
        """Write what stands in for ssh."""
        cases = []
        for name in self.names:
            prefix = " ".join(self.network.prefix(name))
            words = " ".join(f"{key}={text}" for key, text in self._environment(name).items())
            cases.append(
                f'{self.address(name)}) home="{self.home(name)}"; run="{prefix} env -i {words}";;'
            )
        script = self.place / "ssh"
        script.write_text(
            f"""#!/bin/sh
echo "$@" >> "{self.place}/ssh.log"
while [ $# -gt 2 ]; do shift; done
case "$1" in
{chr(10).join(cases)}
*) echo "ssh: Could not resolve hostname $1: Name or service not known" >&2; exit 255;;
esac
if [ -e "$home/down" ]; then
    echo "ssh: connect to host $1 port 22: No route to host" >&2; exit 255
fi
hidden="{self.private}"
[ -e "$home/hidden" ] && hidden="$hidden $(cat "$home/hidden")"
exec $run sh -c 'for one in '"$hidden"'; do mount -t tmpfs none $one || exit 254; done; cd; '"$2"
"""
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return script


def with_signal(pid: int) -> None:
    """Kill a process that may be gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
