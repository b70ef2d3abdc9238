"""Rights in one namespace, granted and revoked while a test runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.kubernetes.api import RBAC, Object, await_that, path
from tests.kubernetes.control_plane import ControlPlane


@dataclass(frozen=True)
class Rule:
    """What may be done to a resource; ``group`` is empty for the core's."""

    resource: str
    verbs: tuple[str, ...]
    group: str = ""

    def as_object(self) -> Object:
        """Return the rule of a Role."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": [*self.verbs]}


class Rights:
    """A Role of one user, by name; each change has reached the API server's judgement on return."""

    def __init__(
        self, plane: ControlPlane, namespace: str, user: str, name: str = "rights"
    ) -> None:
        self._plane = plane
        self._namespace = namespace
        self._user = user
        self._name = name
        self._rules: tuple[Rule, ...] = ()

    def grant(self, rules: Sequence[Rule]) -> None:
        """Have the user hold exactly these rights through this Role."""
        api, place = self._plane.admin, self._path
        head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": self._name}}
        role = {**head, "kind": "Role", "rules": [rule.as_object() for rule in rules]}
        api.apply(place("roles"), role)
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self._name}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": self._user}
        binding = {**head, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
        api.apply(place("rolebindings"), binding)
        before, self._rules = self._rules, tuple(rules)
        for rule in before:
            for verb in rule.verbs:
                self._await(rule, verb, self._holds(rule, verb))
        for rule in rules:
            for verb in rule.verbs:
                self._await(rule, verb, True)

    def revoke(self) -> None:
        """Take all of them away; `grant` gives them back."""
        self._plane.admin.delete(self._path("rolebindings"))
        self._plane.admin.delete(self._path("roles"))
        before, self._rules = self._rules, ()
        for rule in before:
            for verb in rule.verbs:
                self._await(rule, verb, False)

    def _path(self, kind: str) -> str:
        return path(RBAC, kind, self._name, self._namespace)

    def _holds(self, rule: Rule, verb: str) -> bool:
        return any(
            (one.resource, one.group) == (rule.resource, rule.group) and verb in one.verbs
            for one in self._rules
        )

    def _await(self, rule: Rule, verb: str, allowed: bool) -> None:
        """Wait for the API server, which reads roles from a watch of its own."""
        await_that(
            f"{self._user} {'may' if allowed else 'may not'} {verb} {rule.resource}",
            lambda: (
                self._plane.may(self._user, verb, rule.resource, self._namespace, rule.group)
                is allowed
            ),
        )
