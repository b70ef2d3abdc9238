"""The OpenAPI document: every route is in it, and every reference in it leads somewhere."""

from __future__ import annotations

import html.parser
import json
import re
from typing import Any, cast

import msgspec
import pytest
from starlette.routing import Route

from tests.api import serving
from tests.api.serving import Said, request
from tests.api.test_bounds import run
from tests.api.test_metrics import manager
from understudy.api import answers, bodies, openapi
from understudy.api.authentication import RestSecurity
from understudy.api.rest import Rest
from understudy.clock import SystemClock
from understudy.version import VERSION

REPORTING = {"metrics.reporters": "prom"}
FLINKS = "/v1"


def rest(security: RestSecurity | None = None) -> Rest:
    one = manager(REPORTING, serving.services(), SystemClock())
    return Rest(cast("Any", one), security or RestSecurity())


def asked(path: str) -> Said:
    async def story() -> Said:
        async with serving.endpoint(REPORTING) as port:
            return await serving.exchange(port, request("GET", path, "Host: localhost"))

    return cast("Said", run(story()))


def document() -> Any:
    return json.loads(asked("/openapi.json").body)


def test_every_route_is_in_the_document_and_nothing_else_is() -> None:
    routes = [one for one in rest().application().routes if isinstance(one, Route)]
    expected = {
        (method, one.path.removeprefix(FLINKS))
        for one in routes
        for method in (one.methods or set()) - {"HEAD"}
    }

    actual = {
        (method.upper(), path)
        for path, methods in document()["paths"].items()
        for method in methods
        if method != "servers"
    }

    assert expected == actual
    assert {("GET", "/metrics"), ("PATCH", "/jobs/{job_id}")} < actual


@pytest.mark.parametrize("path", ["/openapi.json", "/v1/openapi.json"])
def test_the_document_is_answered_while_nobody_leads(path: str) -> None:
    said = asked(path)
    shown = json.loads(said.body)

    assert (200, "application/json") == (said.status, said.headers["content-type"])
    assert ("3.1.0", VERSION) == (shown["openapi"], shown["info"]["version"])
    assert ["/", "/v1"] == [one["url"] for one in shown["servers"]]


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    shown = document()
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(shown)))

    assert shown["components"]["schemas"].keys() == named


def test_operations_have_ids_of_their_own_and_all_parameters() -> None:
    operations = [
        (path, one)
        for path, methods in document()["paths"].items()
        for method, one in methods.items()
        if method != "servers"
    ]
    ids = [one["operationId"] for _, one in operations]

    assert len(set(ids)) == len(ids)
    for path, one in operations:
        in_path = [each["name"] for each in one["parameters"] if each["in"] == "path"]
        assert re.findall(r"\{(\w+)\}", path) == in_path
        assert {"default"} < set(one["responses"])


def test_a_body_and_a_query_are_described() -> None:
    paths = document()["paths"]
    stop = paths["/jobs/{job_id}/stop"]["post"]
    failures = paths["/jobs/{job_id}/exceptions"]["get"]

    reference = stop["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    assert reference.endswith("/StopWithSavepoint")
    count = failures["parameters"][1]["schema"]
    assert ("integer", 0) == (count["type"], count["minimum"])
    detail = paths["/jobs/{job_id}/checkpoints/details/{number}"]["get"]
    assert ["string", "integer"] == [one["schema"]["type"] for one in detail["parameters"]]
    run = paths["/artifacts/{artifact_id}/run"]["post"]
    headers = [one for one in run["parameters"] if one["in"] == "header"]
    assert [("Idempotency-Key", "string")] == [(h["name"], h["schema"]["type"]) for h in headers]
    form = paths["/artifacts/upload"]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert ["file"] == form["schema"]["required"]


def test_a_token_is_asked_for_where_there_is_one() -> None:
    def of(security: RestSecurity) -> object:
        return openapi.document(rest(security).operations(), is_secured=security.token is not None)[
            "security"
        ]

    assert ([], [{"bearer": []}]) == (of(RestSecurity()), of(RestSecurity("token")))


class Loads(html.parser.HTMLParser):
    """Collects what a browser would load or execute."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element that loads, and an attribute that does."""
        given = dict(attrs)
        if tag in {"script", "link", "img", "iframe", "object", "embed", "base", "form"}:
            self.found.append(tag)
        self.found += [
            name for name in given if name in {"src", "srcset", "style"} or name[:2] == "on"
        ]
        if tag == "a":
            self.links.append(given["href"] or "")
        if name := given.get("id"):
            self.ids.add(name)


def test_the_page_shows_each_operation_and_loads_nothing() -> None:
    said, shown = asked("/openapi.html"), document()
    text, loads = said.body.decode(), Loads()
    loads.feed(text)

    assert (200, "text/html; charset=utf-8") == (said.status, said.headers["content-type"])
    assert said.headers["content-security-policy"].startswith("default-src 'none'")
    assert [] == loads.found
    assert "url(" not in text
    assert "@import" not in text
    inside = {link.removeprefix("#") for link in loads.links if link.startswith("#")}
    assert {"openapi.json"} == {link for link in loads.links if not link.startswith("#")}
    assert inside <= loads.ids
    for path in shown["paths"]:
        assert path in text


def test_what_stands_in_the_document_is_text_on_the_page() -> None:
    async def nothing(_: Any) -> Any:
        return None

    hostile = answers.Operation("GET", "/<b>", nothing, "<script>alert(1)</script>", bodies.Nothing)
    shown = openapi.page(openapi.document([hostile]))

    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)" in shown


def test_each_type_has_a_description() -> None:
    for name, schema in document()["components"]["schemas"].items():
        assert schema.get("description"), name
        assert msgspec.Struct.__doc__ not in schema["description"]
