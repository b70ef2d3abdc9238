"""Mutants of what is deployed on Kubernetes, and of the TaskManagers that a leader asks for."""

from __future__ import annotations

from tests.mutants.mutant import mutant

WORKERS = "core/workers.py"
STATES = "kubernetes/pod_states.py"
TASKMANAGERS = "kubernetes/taskmanagers.py"
MANIFESTS = "kubernetes/manifests.py"
DEPLOYING = "cli/launch/kubernetes_deploying.py"
ENDING = "cli/launch/kubernetes_leader.py"
WATCH = "kubernetes/watch.py"

ON_WORKERS = "tests/core/test_workers.py"
ON_STATES = "tests/kubernetes/test_pod_states.py"
ON_TASKMANAGERS = "tests/ha/test_kubernetes_taskmanagers.py"
ON_MANIFESTS = "tests/kubernetes/test_manifests.py"
ON_DEPLOYING = "tests/cli/test_kubernetes_deploying.py"

PODS = (
    # --- what proves a death
    mutant(
        "an end that no kubelet has seen is a proof",
        3,
        STATES,
        'is_proof = ended.get("reason") != UNKNOWN',
        "is_proof = True",
        ON_STATES,
    ),
    mutant(
        "a pod that was removed by force is dead",
        3,
        STATES,
        'never_ran = not pod.get("spec", {}).get("nodeName")',
        "never_ran = True",
        ON_STATES,
    ),
    mutant(
        "a pod that a controller has given up is dead",
        3,
        STATES,
        "is_proof = not main and not _is_disrupted(status)",
        "is_proof = not main",
        ON_STATES,
    ),
    mutant(
        "who ends is dead",
        3,
        WORKERS,
        "if one.seen and one.seen.state is WorkerState.DEAD",
        "if one.seen and one.seen.state in (WorkerState.DEAD, WorkerState.ENDING)",
        ON_WORKERS,
    ),
    mutant(
        "who is dead is alive once it is seen so",
        3,
        WORKERS,
        "if one.dead_since is not None:\n            continue",
        "if False:\n            continue",
        ON_WORKERS,
    ),
    mutant(
        "the proof of a death goes at once",
        8,
        WORKERS,
        "if now >= one.dead_since + pool.limits.idle_s",
        "if True",
        ON_WORKERS,
    ),
    mutant(
        "the last state of a pod is not told",
        3,
        TASKMANAGERS,
        "self._tell_all(seen_of(found, is_deleted=True))",
        "pass",
        ON_TASKMANAGERS,
    ),
    mutant(
        "a pod that was asked for is there for ever",
        5,
        TASKMANAGERS,
        "for key, at in self._created.items() if at >= asked_s}",
        "for key, at in self._created.items()}",
        ON_TASKMANAGERS,
    ),
    mutant(
        "pods are watched from a version that is too old",
        7,
        WATCH,
        '            except Outdated:\n                self._version = ""\n',
        "            except Outdated:\n",
        ON_TASKMANAGERS,
    ),
    # --- how many TaskManagers there are
    mutant(
        "pods are asked for before it is known which there are",
        5,
        WORKERS,
        "if not pool.is_known:\n        return pool, []",
        "if False:\n        return pool, []",
        ON_WORKERS,
    ),
    mutant(
        "there is no most",
        5,
        WORKERS,
        "count = min(math.ceil(lacks / pool.limits.slots), _room(pool))",
        "count = math.ceil(lacks / pool.limits.slots)",
        ON_WORKERS,
    ),
    mutant(
        "who ends is a place for a job",
        7,
        WORKERS,
        "in (WorkerState.COMING, WorkerState.RUNNING)",
        "in (WorkerState.COMING, WorkerState.RUNNING, WorkerState.ENDING)",
        ON_WORKERS,
    ),
    mutant(
        "jobs on a pod that goes need no other place",
        7,
        WORKERS,
        "needed = pool.waiting + losing",
        "needed = pool.waiting",
        ON_WORKERS,
    ),
    mutant(
        "another program's pod is one of ours",
        5,
        TASKMANAGERS,
        'if found["metadata"].get("labels", {}).get(WORKER) != worker:',
        "if False:",
        ON_TASKMANAGERS,
    ),
    mutant(
        "pods of TaskManagers do not go with the Deployment",
        5,
        TASKMANAGERS,
        "return owned_by(found)",
        "return None",
        ON_TASKMANAGERS,
    ),
    # --- what is deployed
    mutant(
        "JobManagers of two versions are there at once",
        8,
        MANIFESTS,
        '"strategy": {"type": "Recreate"}',
        '"strategy": {"type": "RollingUpdate"}',
        ON_MANIFESTS,
    ),
    mutant(
        "a JobManager that starts again begins a new run",
        2,
        MANIFESTS,
        'named = ["--run-id", run_id] if run_id else []',
        "named: list[str] = []",
        ON_MANIFESTS,
    ),
    mutant(
        "a repeated start is taken for another",
        2,
        MANIFESTS,
        "self._settings(), self._template(None)]",
        "self._settings(), self._template(self.run_id)]",
        ON_MANIFESTS,
    ),
    mutant(
        "pods have what is about the host of the command",
        8,
        MANIFESTS,
        "self.configuration.settings.items() if key not in ours}",
        "self.configuration.settings.items()}",
        ON_MANIFESTS,
    ),
    mutant(
        "an unfinished run is not continued",
        6,
        DEPLOYING,
        "return unfinished[0] if unfinished else None",
        "return None",
        ON_DEPLOYING,
    ),
    mutant(
        "a Deployment of another run is taken",
        2,
        DEPLOYING,
        "if asked.run_id and run_id and asked.run_id != run_id:",
        "if False:",
        ON_DEPLOYING,
    ),
    mutant(
        "a Deployment of another application is taken",
        2,
        DEPLOYING,
        'if deployment["metadata"].get("annotations", {}).get(CONTENT) != asked.content():',
        "if False:",
        ON_DEPLOYING,
    ),
    mutant(
        "a Deployment that goes is taken",
        7,
        DEPLOYING,
        'if found is None or not found["metadata"].get("deletionTimestamp"):',
        "if True:",
        ON_DEPLOYING,
    ),
    mutant(
        "what goes with an earlier Deployment is taken",
        7,
        DEPLOYING,
        'if any(one["uid"] == owner["uid"] for one in owners):',
        "if owners:",
        ON_DEPLOYING,
    ),
    mutant(
        "another program's Deployment is removed",
        6,
        DEPLOYING,
        "if not _is_ours(found, cluster):",
        "if False:",
        ON_DEPLOYING,
    ),
    mutant(
        "a Deployment is removed whatever its run",
        6,
        DEPLOYING,
        'if run_id and found["metadata"]["labels"].get(RUN_ID) != run_id:',
        "if False:",
        ON_DEPLOYING,
    ),
    mutant(
        "the next Deployment of that name is removed",
        6,
        DEPLOYING,
        '"preconditions": {"uid": found["metadata"]["uid"]},',
        '"preconditions": {},',
        ON_DEPLOYING,
    ),
    mutant(
        "a run that ended takes the Deployment of the next one with it",
        6,
        ENDING,
        "await remove(client, cluster, run_id)",
        "await remove(client, cluster)",
        ON_DEPLOYING,
    ),
)
