"""Applications submitted over REST: what is taken, what is refused, and what may be repeated."""

from __future__ import annotations

import asyncio
import base64
import io
import tarfile
import zipfile
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from tests.api.test_many_applications import Led, led
from tests.ha import ground
from tests.support.faulty_register import Durable
from tests.support.virtual_time import run_virtual
from understudy.api import rest_runs
from understudy.core.ids import application_id
from understudy.errors import SubmissionError
from understudy.ha.artifact_store import ReceivedFile
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.model import (
    ApplicationDocument,
    ApplicationId,
    ApplicationRecord,
    Artifact,
    JobId,
    Pointer,
)
from understudy.process import requirements
from understudy.rpc.messages import Submit

STAYS = {"execution.shutdown-on-application-finish": "false"}
ID = "0123456789abcdef" * 2
OTHER = "f" * 32
PLAIN = b"print('hello')\n"
CONVERTED = b"import understudy\n\n\ndef main():\n    pass\n"

Json = dict[str, Any]
Story = Callable[[Led], Awaitable[Any]]


def zipped(**files: bytes) -> bytes:
    """Return a zip of modules; a double underscore in a name stands for a slash."""
    return packed({f"{name.replace('__', '/')}.py": body for name, body in files.items()})


def packed(files: dict[str, bytes]) -> bytes:
    """Return a zip of files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return file.getvalue()


def tarred(*members: tarfile.TarInfo) -> bytes:
    """Return a compressed tar of members without content."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for one in members:
            archive.addfile(one)
    return file.getvalue()


async def upload(leader: Led, name: str, body: bytes) -> str:
    """Upload an artifact; return its id."""
    received = ReceivedFile(name, digest(body), len(body), io.BytesIO(body))
    services = leader.manager.around.services
    assert leader.manager.term is not None
    term = leader.manager.term.number
    return (await services.artifacts.add(term, received, 1 << 30, 100.0)).artifact_id


async def run(leader: Led, artifact: str, body: Json | None = None, **more: Any) -> httpx.Response:
    """Ask for an application."""
    return await leader.client.post(f"/artifacts/{artifact}/run-application", json=body, **more)


async def record(leader: Led, application: str = ID) -> ApplicationRecord:
    """Return what is stored of an application."""
    linked = leader.dispatcher.applications[application]  # type: ignore[index]
    assert linked._stored is not None
    return await leader.manager.around.services.applications.record(linked._stored.body)


def told(story: Story, **settings: str) -> Any:
    """Tell a story to a leader of a cluster that stays."""

    async def main() -> Any:
        async with led(Durable(), {**STAYS, **settings}) as leader:
            return await story(leader)

    return run_virtual(main())


def test_an_application_is_durable_once_it_is_answered() -> None:
    async def main() -> None:
        durable = Durable()
        async with led(durable, STAYS) as leader:
            artifact = await upload(leader, "etl.py", CONVERTED)
            said: Json = {
                "applicationId": ID,
                "programArgsList": ["--year", "2013"],
                "jobId": OTHER,
                "flinkConfiguration": {
                    "spark.app.name": "flights",
                    "spark.sql.shuffle.partitions": "4",
                    "restart-strategy.type": "none",
                },
            }
            answer = await run(leader, artifact, said)
            stored = await record(leader)
        left = await ground.services(durable).registry.read()

        assert (202, {"applicationid": ID}) == (answer.status_code, answer.json())
        assert left is not None
        assert [ID] == list(left.applications)
        assert (ID, ID, "flights") == (stored.run_id, stored.application_id, stored.name)
        assert ("etl.py", "etl.py", ("--year", "2013")) == (
            stored.target,
            stored.script,
            stored.args,
        )
        assert OTHER == stored.first_job_id
        assert {"restart-strategy.type": "none"} == stored.configuration
        assert "4" == stored.profile.conf["spark.sql.shuffle.partitions"]
        assert ["app/etl.py"] == [one.name for one in stored.artifacts]
        assert (artifact,) == stored.uploads
        assert not stored.as_job

    run_virtual(main())


def test_an_application_brings_its_requirements_or_has_the_clusters() -> None:
    """The text is stored with the application: no host needs a file."""

    async def story(leader: Led) -> list[bytes]:
        artifact = await upload(leader, "etl.py", CONVERTED)
        found = []
        for one, text in ((ID, "cherry<2"), (OTHER, "")):
            settings = {"python.requirements": text} if text else {}
            await run(leader, artifact, {"applicationId": one, "flinkConfiguration": settings})
            stored = await record(leader, one)
            directory = leader.dispatcher.applications[one]._stored.body.directory  # type: ignore[index, union-attr]
            services = leader.manager.around.services
            blobs = BlobStore(services.storage.blocking, services.locations.cluster, directory)
            (wanted,) = [item for item in stored.artifacts if item.name == requirements.PLACE]
            found.append(blobs.get(wanted))
        return found

    assert [b"cherry<2", b"plum"] == told(story, **{"python.requirements": "plum"})


def test_the_same_request_again_is_the_same_application_also_for_the_next_leader() -> None:
    async def main() -> None:
        durable, codes = Durable(), []
        async with led(durable, STAYS) as leader:
            artifact = await upload(leader, "etl.py", CONVERTED)
            both = [run(leader, artifact, {"applicationId": ID}) for _ in range(2)]
            codes += [one.status_code for one in await asyncio.gather(*both)]
        async with led(durable, STAYS, 3) as leader:
            codes.append((await run(leader, artifact, {"applicationId": ID})).status_code)
            count = len(leader.dispatcher.applications)

        assert [202, 202, 202] == codes
        assert 1 == count

    run_virtual(main())


def test_another_request_under_the_id_of_an_unfinished_one_is_refused() -> None:
    async def main() -> None:
        durable = Durable()
        async with led(durable, STAYS) as leader:
            artifact = await upload(leader, "etl.py", CONVERTED)
            other = await upload(leader, "etl.py", CONVERTED + b"# changed\n")
            await run(leader, artifact, {"applicationId": ID})
            refused = [
                await run(leader, other, {"applicationId": ID}),
                await run(leader, artifact, {"applicationId": ID, "programArgsList": ["x"]}),
            ]
        async with led(durable, STAYS, 3) as leader:
            refused.append(await run(leader, other, {"applicationId": ID}))

        assert [(409, "different-request")] * 3 == [
            (one.status_code, one.json()["code"]) for one in refused
        ]

    run_virtual(main())


def test_of_several_requests_under_one_id_at_once_one_is_taken() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        asked = [
            run(leader, artifact, {"applicationId": ID, "programArgsList": [text]})
            for text in ("a", "b", "c")
        ]
        answers = await asyncio.gather(*asked)
        return sorted(one.status_code for one in answers), len(leader.dispatcher.applications)

    assert ([202, 409, 409], 1) == told(story)


def test_the_id_of_an_ended_one_is_refused_with_what_it_is_now() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        await run(leader, artifact, {"applicationId": ID})
        await asyncio.sleep(1)
        await leader.post(f"/applications/{ID}/cancel")
        await asyncio.sleep(5)
        return await run(leader, artifact, {"applicationId": ID})

    answer = told(story)

    assert 409 == answer.status_code
    found = answer.json()
    assert ("already-ended", ID, "CANCELED") == (
        found["code"],
        found["applicationid"],
        found["status"],
    )


def test_an_artifact_stays_as_long_as_the_application_needs_it() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        await run(leader, artifact, {"applicationId": ID})
        during = await leader.client.delete(f"/artifacts/{artifact}")
        await asyncio.sleep(1)
        await leader.post(f"/applications/{ID}/cancel")
        await asyncio.sleep(5)
        after = await leader.client.delete(f"/artifacts/{artifact}")
        return during.status_code, after.status_code

    assert (409, 200) == told(story)


def test_a_named_run_has_the_id_that_follows_from_its_name() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        answers = [await run(leader, artifact, {"runId": "tuesday"}) for _ in range(2)]
        return [one.json()["applicationid"] for one in answers]

    assert [application_id(ground.CLUSTER, "tuesday")] * 2 == told(story)


def test_without_an_id_each_request_is_an_application_of_its_own() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        answers = [await run(leader, artifact) for _ in range(2)]
        return {one.json()["applicationid"] for one in answers}, len(leader.dispatcher.applications)

    ids, count = told(story)

    assert (2, 2) == (len(ids), count)


def test_what_a_standby_passes_on_twice_is_one_application() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        headers = {"x-understudy-id": ID}
        answers = [await run(leader, artifact, headers=headers) for _ in range(2)]
        return [one.json()["applicationid"] for one in answers]

    assert [ID, ID] == told(story)


def test_the_same_idempotency_key_is_the_same_application() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        answers = [
            await run(leader, artifact, said, headers={"Idempotency-Key": key})
            for key, said in (
                ("one", None),
                ("one", None),
                ("two", None),
                ("one", {"programArgs": "other"}),
            )
        ]
        return [one.status_code for one in answers], [
            one.json().get("applicationid") for one in answers
        ]

    codes, ids = told(story)

    assert [202, 202, 202, 409] == codes
    assert ids[0] == ids[1] != ids[2]


# --- exactly one job ------------------------------------------------------------------------------


async def submit(leader: Led, number: int) -> None:
    """Submit a job as ``main`` of the application does."""
    application = leader.dispatcher.application(ApplicationId(ID))
    assert application is not None
    job = Submit(
        request=number,
        job_id=JobId(f"{number:032x}"),
        name=f"job {number}",
        occurrence=0,
        plan=Pointer(path="plan", digest="sha256:0", size=1),
    )
    await application.requests.submit(job)


async def asked(leader: Led, body: bytes, said: Json | None = None) -> asyncio.Task[Any]:
    """Ask for the one job of an application; return once that is executed."""
    artifact = await upload(leader, "etl.py", body)
    path = f"/artifacts/{artifact}/run"
    headers = {"x-understudy-id": ID}
    asking = asyncio.create_task(leader.client.post(path, json=said, headers=headers))
    await asyncio.sleep(1)
    return asking


@pytest.mark.parametrize(("body", "took"), [(PLAIN, 0.0), (CONVERTED, rest_runs.SOON_S)])
def test_the_one_job_is_answered_once_it_is_there(body: bytes, took: float) -> None:
    async def story(leader: Led) -> Any:
        asking = await asked(leader, body)
        await submit(leader, 1)
        application = leader.dispatcher.application(ApplicationId(ID))
        assert application is not None
        awaiting = asyncio.create_task(application.requests.outcome(JobId(f"{1:032x}")))
        began = asyncio.get_running_loop().time()
        answer = await asking
        awaiting.cancel()
        return answer.status_code, answer.json(), asyncio.get_running_loop().time() - began

    code, answer, seconds = told(story)

    assert (200, {"jobid": f"{1:032x}", "applicationId": ID}) == (code, answer)
    assert took == pytest.approx(seconds, abs=0.5)


def test_a_second_job_ends_the_application_and_is_the_answer() -> None:
    async def story(leader: Led) -> Any:
        asking = await asked(leader, CONVERTED)
        await submit(leader, 1)
        with pytest.raises(SubmissionError, match="main has submitted job 'job 2' beside 'job 1'"):
            await submit(leader, 2)
        answer = await asking
        shown = (await leader.get("/applications/overview"))["applications"]
        return answer, [(one["status"], sum(one["jobs"].values())) for one in shown]

    answer, shown = told(story)

    assert (400, "submission") == (answer.status_code, answer.json()["code"])
    assert "main has submitted job 'job 2' beside 'job 1'" in answer.json()["errors"][0]
    assert [("FAILED", 1)] == shown


@pytest.mark.parametrize(("said", "code", "left"), [({"applicationId": ID}, 503, 1), ({}, 408, 0)])
def test_without_a_job_for_long_who_can_ask_again_is_asked_to_and_else_nothing_is_left(
    said: Json, code: int, left: int
) -> None:
    async def story(leader: Led) -> Any:
        answer = await (await asked(leader, CONVERTED, said))
        return answer.status_code, len(leader.dispatcher.applications)

    assert (code, left) == told(story)


def test_one_that_could_not_be_cancelled_is_not_said_to_be() -> None:
    async def story(leader: Led) -> Any:
        async def slowly(body: ApplicationDocument) -> ApplicationRecord:
            await asyncio.Future()
            raise AssertionError

        leader.manager.around.services.applications.record = slowly  # type: ignore[method-assign]
        answer = await (await asked(leader, CONVERTED, {}))
        return answer.status_code, answer.json()["errors"][0], [*leader.dispatcher.applications]

    code, message, (left,) = told(story)

    assert 408 == code
    assert "was cancelled" not in message
    assert f"/applications/{left}/cancel" in message


def test_the_same_artifact_may_not_be_run_in_both_ways_under_one_id() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        await run(leader, artifact, {"applicationId": ID})
        path = f"/artifacts/{artifact}/run"
        return (await leader.client.post(path, json={"applicationId": ID})).json()["code"]

    assert "different-request" == told(story)


def test_a_main_that_ends_without_a_job_is_the_answer() -> None:
    async def story(leader: Led) -> Any:
        asking = await asked(leader, CONVERTED)
        application = leader.dispatcher.application(ApplicationId(ID))
        assert application is not None
        assert application._starting is not None
        application._starting.cancel()  # Nobody gets a process here.
        application.enqueue(application._returned())
        return await asking

    answer = told(story)

    assert 400 == answer.status_code
    assert "main has ended without a job" in answer.json()["errors"][0]


def test_a_leader_whose_term_ends_meanwhile_hands_the_request_on() -> None:
    async def story(leader: Led) -> Any:
        asking = await asked(leader, CONVERTED)
        leader.dispatcher.applications[ApplicationId(ID)].over.set()
        return (await asking).status_code

    assert 503 == told(story), "nobody else leads here"


# --- what runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "body", "entry", "expected"),
    [
        ("etl.py", PLAIN, None, ("etl.py", "etl.py", True)),
        ("etl.py", PLAIN, "etl.py", ("etl.py", "etl.py", True)),
        ("etl.py", CONVERTED, "etl:main", ("etl:main", "", False)),
        ("etl.py", CONVERTED, "-m etl", ("-m etl", "", False)),
        ("etl.py", CONVERTED, "etl", ("-m etl", "", False)),
        (
            "code.zip",
            zipped(etl=b"import steps\n", steps=CONVERTED),
            "etl.py",
            ("etl.py", "etl.py", False),
        ),
        (
            "code.zip",
            packed({"jobs/__init__.py": b"", "jobs/__main__.py": PLAIN}),
            "-m jobs",
            ("-m jobs", "", True),
        ),
        (
            "jobs-1.0-py3-none-any.whl",
            packed({"jobs/__init__.py": b"", "jobs/etl.py": CONVERTED}),
            "jobs.etl:main",
            ("jobs.etl:main", "", False),
        ),
    ],
)
def test_what_runs_follows_from_the_entry_class(
    name: str, body: bytes, entry: str | None, expected: tuple[str, str, bool]
) -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, name, body)
        answer = await run(leader, artifact, {"applicationId": ID, "entryClass": entry})
        assert 202 == answer.status_code, answer.text
        stored = await record(leader)
        return stored.target, stored.script, stored.as_job

    assert expected == told(story)


def test_the_request_overrules_what_the_sources_say() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", PLAIN)
        await run(leader, artifact, {"applicationId": ID, "runsAs": "main"})
        return (await record(leader)).as_job

    assert not told(story)


def test_settings_that_a_plain_script_writes_down_are_those_of_its_drivers() -> None:
    script = b"spark = SparkSession.builder.config('spark.sql.shuffle.partitions', '7')\n"

    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", script)
        await run(leader, artifact, {"applicationId": ID})
        return (await record(leader)).profile.conf

    assert {"spark.app.name": "etl", "spark.sql.shuffle.partitions": "7"} == told(story)


def test_further_artifacts_lie_where_processes_look_for_them() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        modules = await upload(leader, "steps.zip", zipped(steps=PLAIN))
        packed = await upload(leader, "env.tar.gz", tarred(tarfile.TarInfo("bin/python")))
        answer = await run(
            leader,
            artifact,
            {
                "applicationId": ID,
                "pyFiles": [modules],
                "files": [modules],
                "archives": [f"{packed}#env"],
                "flinkConfiguration": {"spark.files": "hdfs://there/a.csv"},
            },
        )
        assert 202 == answer.status_code, answer.text
        return await record(leader), (artifact, modules, packed)

    stored, uploads = told(story)

    assert [
        ("app/etl.py", False),
        ("files/steps.zip", True),
        ("files-1/steps.zip", False),
        ("archives-0/env.tar.gz", False),
    ] == [(one.name, one.on_path) for one in stored.artifacts]
    assert "hdfs://there/a.csv,steps.zip" == stored.profile.conf["spark.files"]
    assert "env.tar.gz#env" == stored.profile.conf["spark.archives"]
    assert uploads == stored.uploads


def test_an_archive_of_code_is_unpacked_where_the_script_lies() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "code.zip", zipped(etl=CONVERTED))
        await run(leader, artifact, {"applicationId": ID, "entryClass": "etl.py"})
        return (await record(leader)).artifacts

    (one,) = told(story)

    assert ("app", True) == (one.name, one.unpacked)
    assert isinstance(one, Artifact)


def test_flinks_clients_may_say_it_in_the_query() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        query = "?entry-class=etl%3Amain&program-args=--year%202013&parallelism=2"
        path = f"/v1/jars/{artifact}/run-application{query}"
        answer = await leader.client.post(
            path, json={"applicationId": ID, "entryClass": "", "programArgs": None}
        )
        assert 202 == answer.status_code, answer.text
        stored = await record(leader)
        return stored.target, stored.args

    assert ("etl:main", ("--year", "2013")) == told(story)


# --- what is refused ------------------------------------------------------------------------------

LINK = tarfile.TarInfo("etl.py")
LINK.type, LINK.linkname = tarfile.SYMTYPE, "other.py"


@pytest.mark.parametrize(
    ("name", "body", "said", "why"),
    [
        ("etl.py", PLAIN, {"unknown": 1}, "unknown field `unknown`"),
        ("etl.py", PLAIN, {"applicationId": "A" * 32}, "applicationId"),
        ("etl.py", PLAIN, {"applicationId": ID, "runId": "one"}, "give one of them"),
        ("etl.py", PLAIN, {"runId": "../one"}, "'../one': use up to 64 letters"),
        ("etl.py", PLAIN, {"claimMode": "LEGACY"}, "LEGACY"),
        ("etl.py", PLAIN, {"claimMode": "CLAIM"}, "are about savepointPath"),
        ("etl.py", PLAIN, {"savepointPath": "here"}, "give an absolute path or a URL"),
        ("etl.py", PLAIN, {"savepointPath": "/nowhere/at/all"}, "/nowhere/at/all"),
        ("etl.py", PLAIN, {"programArgs": "a", "programArgsList": ["a"]}, "give one of them"),
        ("etl.py", PLAIN, {"programArgs": "'"}, "give programArgsList"),
        ("etl.py", PLAIN, {"programArgsList": ["\0"]}, "holds a NUL"),
        ("etl.py", PLAIN, {"entryClass": "other.py"}, "neither etl.py nor pyFiles hold it"),
        ("etl.py", PLAIN, {"entryClass": "../etl.py"}, "give the script's path"),
        ("etl.py", PLAIN, {"entryClass": "a b"}, "give a script.py, a module"),
        ("etl.py", PLAIN, {"flinkConfiguration": {"rest.port": "1"}}, "a setting of the cluster"),
        ("etl.py", PLAIN, {"flinkConfiguration": {"rest.prot": "1"}}, "unknown option"),
        ("etl.py", PLAIN, {"flinkConfiguration": {"spark.master": "locl"}}, "no such master"),
        ("etl.py", PLAIN, {"flinkConfiguration": {"spark.app.name": "\n"}}, "printable"),
        ("etl.py", PLAIN, {"flinkConfiguration": {"python.requirements": "-r a"}}, "line 1: -r a"),
        ("etl.py", PLAIN, {"pyFiles": ["0_a.zip"]}, "there is no artifact '0_a.zip' here"),
        ("etl.py", b"def:\n", {}, "correct the script"),
        ("code.zip", zipped(etl=PLAIN), {}, "entryClass is missing"),
        ("a-1.0-cp27-cp27m-win32.whl", zipped(etl=PLAIN), {"entryClass": "etl"}, "was built for"),
        ("code.tar.gz", tarred(LINK), {"entryClass": "etl.py"}, "is a symbolic link"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_stored(
    name: str, body: bytes, said: Json, why: str
) -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, name, body)
        answer = await run(leader, artifact, said)
        return answer.status_code, answer.json()["errors"][0], leader.dispatcher.applications

    code, error, applications = told(story)

    assert (404 if "pyFiles" in said else 400) == code
    assert why in error
    assert {} == applications


def test_an_unknown_artifact_is_not_found() -> None:
    async def story(leader: Led) -> Any:
        return (await run(leader, f"{ID}_etl.py")).status_code

    assert 404 == told(story)


def test_a_cluster_that_ends_with_its_application_takes_no_other() -> None:
    async def story(leader: Led) -> Any:
        return (await run(leader, f"{ID}_etl.py")).status_code

    stays = {"execution.shutdown-on-application-finish": "true"}

    assert 403 == told(story, **stays)


def test_the_first_job_s_id_of_another_application_is_refused() -> None:
    async def story(leader: Led) -> Any:
        artifact = await upload(leader, "etl.py", CONVERTED)
        await run(leader, artifact, {"applicationId": ID})
        await asyncio.sleep(1)
        (linked,) = leader.dispatcher.applications.values()
        assert linked._plans is not None
        job = replace(ground.job(1), job_id=OTHER)
        assert linked.application is not None
        linked.application.jobs.entries[job.job_id] = job
        return await run(leader, artifact, {"applicationId": "1" * 32, "jobId": OTHER})

    answer = told(story)

    assert (409, "submission") == (answer.status_code, answer.json()["code"])


# --- a job without main ---------------------------------------------------------------------------

PLAN = b'{"format":1,"name":"load","versions":{}}\npickled'


async def plan(leader: Led, **said: Any) -> httpx.Response:
    """Ask for a job without ``main``."""
    body = {"plan": base64.b64encode(PLAN).decode(), "jobId": ID, **said}
    return await leader.client.post("/jobs", json=body)


def test_a_plan_alone_is_an_application_of_one_job_whose_id_is_the_same() -> None:
    async def main() -> None:
        durable = Durable()
        async with led(durable, STAYS) as leader:
            answers = [await plan(leader)]
            before = await leader.get(f"/jobs/{ID}")
            answers.append(await plan(leader))
        async with led(durable, STAYS, 3) as leader:
            answers.append(await plan(leader))
            other = await plan(leader, flinkConfiguration={"restart-strategy.type": "none"})
            after = await leader.get(f"/jobs/{ID}")
            cancelled = await leader.client.patch(f"/jobs/{ID}?mode=cancel")
            await asyncio.sleep(5)
            late = await plan(leader)
            left = (await leader.get("/applications/overview"))["applications"]

        assert {(202, f"/jobs/{ID}")} == {
            (one.status_code, one.json()["jobUrl"]) for one in answers
        }
        assert (ID, "load", "CREATED") == (
            before["application-id"],
            before["name"],
            before["state"],
        )
        assert (ID, "load") == (after["jid"], after["name"])
        assert (409, 202) == (other.status_code, cancelled.status_code)
        assert (409, "CANCELED") == (late.status_code, late.json()["status"])
        assert [(ID, "CANCELED", {"CANCELED": 1})] == [
            (one["id"], one["status"], one["jobs"]) for one in left
        ]

    run_virtual(main())


@pytest.mark.parametrize(
    "said", [{"plan": "?"}, {"plan": "AAAA"}, {"jobId": "one"}, {"more": 1}, {"pyFiles": ["a.exe"]}]
)
def test_what_is_no_plan_is_refused(said: Json) -> None:
    async def story(leader: Led) -> Any:
        answer = await plan(leader, **said)
        return answer.status_code, len(leader.dispatcher.applications)

    assert (404 if "pyFiles" in said else 400, 0) == told(story)
