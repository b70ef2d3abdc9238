"""The OpenAPI 3.1 document of the REST endpoint, and a page that shows it.

The document is generated from the operations and the types of their bodies. The page is rendered
here: it has no script, and loads nothing.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from understudy.api import bodies, views
from understudy.api.answers import Count, Operation
from understudy.api.views import Json
from understudy.version import VERSION

PREFIXES = ("", "/v1")
"""What an operation's path begins with; without a prefix, and with Flink's."""

DOCUMENT, PAGE = "/openapi.json", "/openapi.html"

_SCHEMAS = "#/components/schemas/"

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
"""Content-Security-Policy of the page: nothing is loaded, and nothing is executed."""

_IN_PATHS: dict[str, Any] = {"number": Count}
"""Types of parameters in paths that are not any text."""

_PARAMETER = re.compile(r"\{(\w+)\}")

_STYLE = (
    "body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "h2{font:bold 15px monospace;margin:2em 0 0}b{color:#06c;margin-right:.5em}"
    "table{border-collapse:collapse}td{padding:.1em 1em .1em 0;vertical-align:top}"
    "td:first-child{font-family:monospace}@media(prefers-color-scheme:dark)"
    "{body{background:#111;color:#ddd}a,b{color:#6af}}"
)


def document(
    operations: Iterable[Operation], local: Iterable[Operation] = (), *, is_secured: bool = False
) -> Json:
    """Return the document; ``local`` operations have no prefix.

    ``is_secured``: each request needs a token.
    """
    operations, local = [*operations], [*local, *_own()]
    schemas, components = _schemas([*operations, *local])
    paths: dict[str, Json] = {}
    for one in (*operations, *local):
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one, schemas)
    for one in local:
        if one.path != DOCUMENT:
            paths[one.path]["servers"] = [{"url": "/"}]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Understudy",
            "version": VERSION,
            "description": "Paths and shapes are Flink's where Flink has them.",
        },
        "servers": [{"url": prefix or "/"} for prefix in PREFIXES],
        "security": [{"bearer": []}] if is_secured else [],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def routes(described: Json) -> list[Route]:
    """Return the routes of the document and the page: each JobManager answers them itself."""
    as_json, as_page = views.encode(described), page(described).encode()

    async def show_document(request: Request) -> Response:
        return Response(as_json, headers={"content-type": "application/json"})

    async def show_page(request: Request) -> Response:
        return Response(as_page, headers={**_OF_PAGE, "content-security-policy": _POLICY})

    found = [Route(prefix + DOCUMENT, show_document, methods=["GET"]) for prefix in PREFIXES]
    return [*found, Route(PAGE, show_page, methods=["GET"])]


_OF_PAGE = {"content-type": "text/html; charset=utf-8", "referrer-policy": "no-referrer"}


async def _served_elsewhere(request: Request) -> Response:
    raise NotImplementedError("see `routes`")


def _own() -> list[Operation]:
    return [
        Operation("GET", DOCUMENT, _served_elsewhere, "This document.", dict[str, Any]),
        Operation(
            "GET", PAGE, _served_elsewhere, "This document as a page.", _OF_PAGE["content-type"]
        ),
    ]


def _schemas(operations: Iterable[Operation]) -> tuple[dict[int, Json], dict[str, Json]]:
    """Return the schema of each type, by the type's identity, and the components they refer to."""
    types: list[Any] = [bodies.Error, str, *_IN_PATHS.values()]
    for one in operations:
        types += [kind for kind in (one.answer, one.body) if kind and not isinstance(kind, str)]
        types += [parameter.type for parameter in (*one.query, *one.headers)]
    found, components = msgspec.json.schema_components(types, ref_template=f"{_SCHEMAS}{{name}}")
    return {id(kind): schema for kind, schema in zip(types, found, strict=True)}, components


def _described(one: Operation, schemas: dict[int, Json]) -> Json:
    kind = one.answer if isinstance(one.answer, str) else "application/json"
    schema = {"type": "string"} if isinstance(one.answer, str) else schemas[id(one.answer)]
    error = {"application/json": {"schema": schemas[id(bodies.Error)]}}
    parameters: list[Json] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": schemas[id(_IN_PATHS.get(name, str))],
        }
        for name in _PARAMETER.findall(one.path)
    ]
    parameters += [
        {
            "name": parameter.name,
            "in": place,
            "description": parameter.meaning,
            "schema": schemas[id(parameter.type)],
        }
        for place, several in (("query", one.query), ("header", one.headers))
        for parameter in several
    ]
    answer: Json = {
        "operationId": re.sub(r"\W+", "-", f"{one.method.lower()}{one.path}").strip("-"),
        "summary": one.summary,
        "parameters": parameters,
        "responses": {
            str(one.status): {"description": one.summary, "content": {kind: {"schema": schema}}},
            "default": {"description": "A refusal.", "content": error},
        },
    }
    if one.takes_file:
        file = {
            "type": "object",
            "properties": {"file": {"type": "string", "format": "binary"}},
            "required": ["file"],
            "additionalProperties": False,
        }
        answer["requestBody"] = {
            "required": True,
            "content": {"multipart/form-data": {"schema": file}},
        }
    if one.body:
        content = {"application/json": {"schema": schemas[id(one.body)]}}
        answer["requestBody"] = {"required": False, "content": content}
    return answer


# --- the page -------------------------------------------------------------------------------------


def page(described: Json) -> str:
    """Return the document as HTML."""
    info = described["info"]
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>{_text(info['title'])} REST</title><style>{_STYLE}</style>",
        f"<h1>{_text(info['title'])} REST</h1><p>{_text(info['version'])}. ",
        f'{_text(info["description"])} <a href="{DOCUMENT[1:]}">OpenAPI</a></p>',
    ]
    for path, methods in described["paths"].items():
        for method, one in methods.items():
            if method != "servers":
                parts += _operation_shown(method, path, one)
    for name, schema in described["components"]["schemas"].items():
        parts += _schema_shown(name, schema)
    return "".join([*parts, "</html>\n"])


def _operation_shown(method: str, path: str, one: Json) -> Iterator[str]:
    yield f'<h2 id="{_text(one["operationId"])}"><b>{_text(method.upper())}</b>{_text(path)}</h2>'
    yield f"<p>{_text(one['summary'])}</p><table>"
    for parameter in one["parameters"]:
        meaning = parameter.get("description", "")
        yield _row(parameter["name"], parameter["in"], _text(meaning))
    taken = one.get("requestBody", {}).get("content", {})
    for kind, content in taken.items():
        yield _row("body", _text(kind), _type(content["schema"]))
    for status, answer in one["responses"].items():
        for kind, content in answer["content"].items():
            yield _row(status, _text(kind), _type(content["schema"]))
    yield "</table>"


def _schema_shown(name: str, schema: Json) -> Iterator[str]:
    yield f'<h2 id="schema-{_text(name)}">{_text(name)}</h2>'
    yield f"<p>{_text(schema.get('description', ''))}</p><table>"
    required = schema.get("required", [])
    for key, kind in schema.get("properties", {}).items():
        yield _row(key, _type(kind), "" if key in required else "may be missing")
    yield "</table>"


def _row(name: str, *cells: str) -> str:
    rest = "".join(f"<td>{cell}</td>" for cell in cells)
    return f"<tr><td>{_text(name)}</td>{rest}</tr>"


def _type(schema: Json) -> str:
    """Return a type in few words, as HTML."""
    if reference := schema.get("$ref"):
        name = _text(reference.removeprefix(_SCHEMAS))
        return f'<a href="#schema-{name}">{name}</a>'
    if several := schema.get("anyOf"):
        return " or ".join(_type(one) for one in several)
    if values := schema.get("enum"):
        return ", ".join(_text(str(one)) for one in values)
    kind = schema.get("format") or schema.get("type", "anything")
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    return _text(str(kind))


def _text(text: str) -> str:
    return html.escape(text)
