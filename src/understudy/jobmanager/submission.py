"""An application to submit: gathered on this host, stored so that any host can execute it."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field

from understudy.config import options
from understudy.config.configuration import redact
from understudy.core.ids import application_id
from understudy.ha import layout
from understudy.ha.blobs import BlobStore
from understudy.ha.format import digest
from understudy.ha.services import HighAvailabilityServices
from understudy.model import (
    ApplicationRecord,
    Artifact,
    Pointer,
    RunId,
    SessionProfile,
    StartFrom,
)
from understudy.process import code, requirements
from understudy.process.code import SourceFile


@dataclass(frozen=True)
class Submission:
    """An application that is not stored yet."""

    name: str
    target: str
    """The script's file name, ``-m module``, or ``module:function``."""
    script: str
    """The script's absolute path or URL; empty for a module and for a function."""
    args: tuple[str, ...]
    cwd: str
    files: tuple[SourceFile, ...]
    conf: dict[str, str] = field(default_factory=dict)
    """Spark's settings."""
    configuration: dict[str, str] = field(default_factory=dict)
    first_job_id: str = ""
    savepoints: tuple[StartFrom, ...] = ()
    as_job: bool = False
    """Run it whole as one job."""
    single_job: bool = False
    """``main`` has to submit exactly one job."""
    plan: bytes = b""
    """The plan of the one job of an application without ``main``, whose id is the first job's."""
    job_name: str = ""
    uploaded: tuple[Artifact, ...] = ()
    """Files that lie in storage already."""
    uploads: tuple[str, ...] = ()
    """Ids of the uploaded artifacts that must stay while the application is unfinished."""
    request: str = ""
    """Digest of the request that it comes from; empty for one that a process brings."""

    def store(
        self, services: HighAvailabilityServices, run_id: RunId, directory: str, now: float
    ) -> ApplicationRecord:
        """Store all files, and return the record that points to them. Blocking."""
        blobs = BlobStore(services.storage.blocking, services.locations.cluster, directory)
        files = requirements.with_configured(self.files, self.configuration)
        artifacts = (*code.store(blobs, files), *self.uploaded)
        return ApplicationRecord(
            application_id=application_id(services.cluster_id, run_id),
            run_id=run_id,
            name=self.name,
            target=self.target,
            script=self.script,
            args=self.args,
            cwd=self.cwd,
            artifacts=artifacts,
            configuration=self.configuration,
            profile=SessionProfile(conf=self.conf, code=code.code_digest(artifacts), cwd=self.cwd),
            first_job_id=self.first_job_id,
            savepoints=self.savepoints,
            python=platform.python_version(),
            submitted_at=now,
            as_job=self.as_job,
            single_job=self.single_job,
            plan=self._stored_plan(services, directory) if self.plan else None,
            job_name=self.job_name,
            uploads=self.uploads,
            request=self.request,
        )

    def _stored_plan(self, services: HighAvailabilityServices, directory: str) -> Pointer:
        name = digest(self.plan)
        base = layout.application_directory(services.locations.cluster, directory)
        path = f"{base}/plans/{self.first_job_id}-{name[-16:]}"
        services.storage.blocking.publish(path, self.plan)
        return Pointer(path=path, digest=name, size=len(self.plan))


def configuration_of(record: ApplicationRecord) -> dict[str, str]:
    """Return the configuration of an application's submission, secrets hidden."""
    further = options.REDACTED_KEYS.parse(record.configuration.get(options.REDACTED_KEYS.key, ""))
    return redact({**record.configuration, **record.profile.conf}, further)
