"""The command that submits an application to a cluster that stays: understudy run.

The client chooses the application's id before it sends anything, so that every step may be
repeated: an upload is the same artifact, a request the same application. So the command survives
the death of a leader in the middle of any of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.api.client import ClusterClient
from understudy.cli.commands.ask import print_json, with_client
from understudy.cli.commands.common import (
    AS_USUAL,
    SESSION_ID,
    ConfigDir,
    Json,
    Overrides,
    cluster_id_of,
    configured,
)
from understudy.cli.commands.restoring import AnyRun, ClaimMode, NewRun, Restore
from understudy.cli.commands.run import (
    PASS_THROUGH,
    checked_run_id,
    run_application,
    say_how_it_runs,
)
from understudy.cli.commands.savepoint import checked_address
from understudy.cli.commands.targets import TOKEN, asked
from understudy.cli.launch.compose import EXIT_CODES
from understudy.cli.launch.flags import grouped
from understudy.cli.launch.following import follow
from understudy.cli.launch.packing import packed, request_of
from understudy.cli.launch.show import LiveView, PlainView
from understudy.cli.launch.spark_submit import check_configured
from understudy.cli.launch.spec import ApplicationSpec
from understudy.cli.launch.story import Event, Story
from understudy.cli.launch.submitting import application_spec
from understudy.cli.launch.typed import TypedApp
from understudy.config import Configuration, options
from understudy.errors import (
    AlreadyEndedError,
    NoLeaderError,
    UnderstudyError,
    UnreachableError,
    UsageError,
)
from understudy.model import ApplicationStatus
from understudy.process.printed import is_terminal

LOCAL, SESSION = "local", "session"


class OnInterrupt(enum.Enum):
    """What Ctrl-C does to the application."""

    DETACH = "detach"
    """Nothing: only the command ends."""
    CANCEL = "cancel"


@dataclass(frozen=True)
class Where:
    """The cluster that takes the application."""

    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            metavar="local|session|kubernetes-session|URL",
            help="session: the session of this configuration; kubernetes-session: the one in pods, "
            "by kubernetes.cluster-id; URL: the cluster of the JobManager there, or at several "
            "URLs with commas between; local: a cluster of its own, as run-application starts it.",
        ),
    ] = SESSION
    token_file: Annotated[Path | None, TOKEN] = None


@dataclass(frozen=True)
class Following:
    """How the command follows the application that it has submitted."""

    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Submit, print the application's id, and end.")
    ] = False
    on_interrupt: Annotated[
        OnInterrupt, typer.Option("--on-interrupt", help="What Ctrl-C does to the application.")
    ] = OnInterrupt.DETACH
    as_json: Json = False


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("run", context_settings=PASS_THROUGH)(run)


@grouped
def run(
    typed: TypedApp,
    where: Where,
    following: Following,
    run: NewRun,
    overrides: Overrides = None,
    config_dir: ConfigDir = None,
) -> None:
    """Submit an application to a session, and follow it to its end.

    The session executes the application whatever becomes of this command. Exit code: 0 FINISHED,
    1 FAILED, 2 bad usage, 3 CANCELED, 130 interrupted.
    """
    target = where.target
    if target == LOCAL:
        _refuse_for_local(where, following)
        run_application(
            typed=typed,
            size=AS_USUAL,
            run=AnyRun(run.run_id, run.restore),
            overrides=overrides,
            config_dir=config_dir,
            as_json=following.as_json,
        )
        return
    if target == options.KUBERNETES_APPLICATION:
        raise UsageError(f"-t {target}: `understudy run-application -t {target}` deploys one")
    named = None if target == SESSION else target
    settings = asked(named, where.token_file, overrides or [], config_dir)
    configuration = configured(config_dir, settings)
    spec = application_spec(configuration, typed)
    check_configured(configuration, spec.conf)
    say_how_it_runs(spec)
    restored = _restored(run.restore)
    wanted = _Wanted(configuration, spec, checked_run_id(run.run_id), restored, target)
    submitted = _Submitted(wanted.run_id or uuid.uuid4().hex)
    if following.detach:
        with _known_of(submitted):
            asyncio.run(with_client(configuration, wanted.cluster_id, wanted.submit_as(submitted)))
        _tell(submitted, as_json=following.as_json)
        return
    sys.exit(
        _submit_and_follow(wanted, submitted, following.on_interrupt, as_json=following.as_json)
    )


def _refuse_for_local(where: Where, following: Following) -> None:
    if following.detach or where.token_file:
        raise UsageError(
            "--target local is a cluster that ends with this command: leave out --detach and "
            "--token-file, or submit to a session"
        )


def _restored(restore: Restore) -> dict[str, Any]:
    """Return what a request says of a savepoint."""
    if not restore.paths:
        if restore.allow_non_restored or restore.claim is ClaimMode.CLAIM:
            raise UsageError(
                "--allow-non-restored-state and --claim-mode are about --from-savepoint: give one"
            )
        return {}
    if len(restore.paths) > 1:
        raise UsageError(
            "--from-savepoint: an application of a session begins with one savepoint; "
            "run-application and --target local take several"
        )
    found: dict[str, Any] = {"savepointPath": checked_address(restore.paths[0])}
    if restore.allow_non_restored:
        found["allowNonRestoredState"] = True
    if restore.claim:
        found["claimMode"] = restore.claim.value
    return found


@dataclass
class _Submitted:
    """An application whose submission has begun."""

    name: str
    """The run's id, which is the application's too where no person has named the run."""
    application_id: str = ""
    """Empty until the cluster has answered."""
    ended: str = ""
    """The status of a run that had ended before."""


@dataclass(frozen=True)
class _Wanted:
    """What is to be submitted, and where."""

    configuration: Configuration
    spec: ApplicationSpec
    run_id: str | None
    restored: dict[str, Any]
    target: str

    @property
    def cluster_id(self) -> str:
        """Return the cluster; of a URL, whichever is there."""
        return cluster_id_of(self.configuration) or SESSION_ID

    def submit_as(self, submitted: _Submitted) -> Any:
        """Return a function that uploads and submits, and notes what is known of it."""

        async def submit(client: ClusterClient) -> None:
            await self._find_leader(client)
            with tempfile.TemporaryDirectory(prefix="understudy-run-") as place:
                found = await asyncio.to_thread(packed, self.spec, Path(place))
                ids = {one: (await client.upload(one))["id"] for one in found.uploads}
            key = "runId" if self.run_id else "applicationId"
            body = request_of(self.spec, found, ids, self.configuration)
            body |= {**self.restored, key: submitted.name}
            try:
                submitted.application_id = await client.run_application(ids[found.main], body)
            except AlreadyEndedError as error:
                submitted.application_id = error.application_id
                if self.run_id:  # Otherwise it is ours: the first answer was lost.
                    submitted.ended = error.status

        return submit

    async def _find_leader(self, client: ClusterClient) -> None:
        """Raise `UsageError` soon where no session runs, instead of waiting for its leader."""
        try:
            await client.get("/ha/status")
        except NoLeaderError as error:
            if await client.is_alive():
                return  # A leader is elected.
            where = f"at {self.target}"
            way_out = "see whether the address is right"
            if self.target == SESSION:
                where = f"with the cluster id {self.cluster_id!r}"
                way_out = "start one with `understudy session start`"
            raise UsageError(
                f"no session runs {where}: {way_out}, or run the application in a cluster of its "
                f"own with `--target {LOCAL}`"
            ) from error


def _tell(submitted: _Submitted, *, as_json: bool) -> None:
    """Print the id of a submitted application."""
    if as_json:
        told = {"id": submitted.application_id, "run-id": submitted.name}
        print_json({**told, "status": submitted.ended or "SUBMITTED"})
    elif submitted.ended:
        typer.echo(f"understudy: run {submitted.name} has ended: {submitted.ended}", err=True)
    else:
        typer.echo(submitted.application_id)


def _submit_and_follow(
    wanted: _Wanted, submitted: _Submitted, on_interrupt: OnInterrupt, *, as_json: bool
) -> int:
    """Submit an application, show what happens to it, and return the exit code."""
    story = Story(time.time, own=submitted.name)
    live = LiveView(story) if is_terminal(sys.stderr) and not as_json else None
    view = live or PlainView(sys.stdout if as_json else None)

    def show(event: Event) -> None:
        if told := story.hear(event):  # The JobManagers post events to ``notify.url``.
            view.show(told)

    def say(text: str) -> None:
        view.show({"event": "log", "line": text})

    interrupts = _Interrupts(submitted, on_interrupt, say)

    async def work(client: ClusterClient) -> str:
        await wanted.submit_as(submitted)(client)
        application, has_ended = submitted.application_id, bool(submitted.ended)
        if has_ended:
            say(f"understudy: run {submitted.name} has ended: {submitted.ended}")
        else:
            say(f"understudy: application {application} is submitted")
        following = follow(
            client, application, show, shows_log=not has_ended, tells_failures=as_json
        )
        return await interrupts.beside(client, following)

    with live or contextlib.nullcontext(), _known_of(submitted):
        status = asyncio.run(
            with_client(wanted.configuration, wanted.cluster_id, interrupts.heeded(work))
        )
    if interrupts.last and not status:
        typer.echo(f"understudy: {_continues(submitted)}", err=True)
        return 128 + interrupts.last
    return EXIT_CODES[ApplicationStatus(status)]


@contextlib.contextmanager
def _known_of(submitted: _Submitted) -> Iterator[None]:
    """Say what is known of the application where the block ends with an error or an interrupt."""
    try:
        yield
    except (NoLeaderError, UnreachableError) as error:
        raise UnderstudyError(f"{error}; {_continues(submitted)}") from error
    except KeyboardInterrupt:
        typer.echo(f"understudy: {_continues(submitted)}", err=True)
        raise


def _continues(submitted: _Submitted) -> str:
    """Return what becomes of an application that nobody follows any more."""
    name = submitted.application_id or submitted.name
    if not submitted.application_id:
        return (
            f"it is not known whether the application was submitted: `understudy info {name}` "
            "shows it, and the same command with "
            f"`--run-id {name}` submits it once"
        )
    return (
        f"the application continues without this command: `understudy logs -f {name}` follows it, "
        f"`understudy cancel {name}` ends it"
    )


class _Interrupts:
    """Signals to a command that follows an application."""

    def __init__(self, submitted: _Submitted, chosen: OnInterrupt, say: Any) -> None:
        self._submitted = submitted
        self._chosen = chosen
        self._say = say
        self.last = 0
        """The signal that came last."""
        self._came = asyncio.Event()

    def heeded(self, work: Any) -> Any:
        """Return a query that ends with an empty status once a signal detaches the command."""

        async def ask(client: ClusterClient) -> str:
            loop = asyncio.get_running_loop()
            task = asyncio.ensure_future(work(client))

            def note(number: int) -> None:
                cancels = self._chosen is OnInterrupt.CANCEL and number == signal.SIGINT
                again, self.last = self.last, number
                if cancels and not again and self._submitted.application_id:
                    self._came.set()
                else:
                    task.cancel()

            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, note, number)
            try:
                return str(await task)
            except asyncio.CancelledError:
                if not self.last:
                    raise
                return ""

        return ask

    async def beside(self, client: ClusterClient, following: Any) -> str:
        """Follow the application; cancel it once a signal asks for that."""
        cancelling = asyncio.ensure_future(self._cancel(client))
        try:
            return str(await following)
        finally:
            cancelling.cancel()
            await asyncio.gather(cancelling, return_exceptions=True)

    async def _cancel(self, client: ClusterClient) -> None:
        await self._came.wait()
        self._say("cancelling the application; press Ctrl-C again to let it continue unwatched")
        with contextlib.suppress(UnderstudyError):  # What it is now is shown.
            await client.post(f"/applications/{self._submitted.application_id}/cancel")
