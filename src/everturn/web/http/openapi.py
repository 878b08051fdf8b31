"""The OpenAPI 3.1 document, made from the same table that routes and validates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from everturn import __version__
from everturn.domain.errors import EverturnError, Invalid, InvalidId, Limit, Overloaded
from everturn.domain.json_types import Json, JsonObject
from everturn.domain.settings import TypeForm
from everturn.web.access.errors import ScopeMissing, SignInNeeded
from everturn.web.http import problems as p
from everturn.web.http.routing import EVENT_STREAM, AnyEndpoint, Nothing

_REF = "#/components/schemas/{name}"
_TAGS = {
    "sessions": "Conversations: list, read, change, move through their history.",
    "turns": "Messages to the agent and what became of them.",
    "streams": "Everything as it happens, resumable from any position.",
    "asks": "Approvals and questions that wait for a person.",
    "needs": "All that waits for a person.",
    "files": "Uploads, the files of sessions, the full outputs of tools.",
    "jobs": "Commands in the background.",
    "delegates": "Sessions that work for a turn of another.",
    "schedules": "What is due later, and what became of it.",
    "notifications": "Devices and addresses that are told while the page is closed.",
    "skills": "Folders of instructions that the agent reads on demand.",
    "prompts": "Texts that are sent by name.",
    "knowledge": "Folders and uploads that sessions can search.",
    "account": "Signing in and API tokens.",
    "settings": "Models, keys, tools, policy, memory.",
    "gateway": "Accounts on messaging platforms.",
    "openai": "For clients that speak the OpenAI API.",
    "server": "Health and metrics.",
}
_HEADERS = {
    "If-Match": (
        "The version of the session that the request is based on. If it has moved on, the answer is 409 "
        "with the session as it is now.",
        {"type": "string", "pattern": '^"?[0-9]{1,18}"?$'},
    ),
    "Idempotency-Key": (
        "Any text that is new for each new request. Sending a request again with its key changes nothing "
        "and returns the first answer.",
        {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[A-Za-z0-9._:-]+$"},
    ),
    "Last-Event-ID": (
        "The id of the last event that was seen; browsers send it by themselves. Wins over ``after``.",
        {"type": "string", "pattern": "^[0-9]{1,18}$"},
    ),
    "Last-Event-IDs": (
        "The id of the last event that was seen: one position per session. Wins over ``after``.",
        {"type": "string", "pattern": "^(ses_[0-9a-hjkmnp-tv-z]{26}:[0-9]{1,18})?$"},
    ),
    "X-Everturn-Session": (
        "A session's id, or a name of your own; with it the conversation is a durable session.",
        {"type": "string", "minLength": 1, "maxLength": 150, "pattern": "^[A-Za-z0-9._:-]+$"},
    ),
}


def document(endpoints: Iterable[AnyEndpoint], *, base_path: str, extra: tuple[TypeForm, ...]) -> JsonObject:
    """``extra``: types that no endpoint returns but clients need, such as the event union."""
    listed = list(endpoints)
    schemas, components = _schemas(listed, extra)
    if undescribed := {endpoint.tag for endpoint in listed} - _TAGS.keys():
        raise ValueError(
            f"describe these tags: {', '.join(sorted(undescribed))}"
        )  # or the reference omits them
    paths: dict[str, JsonObject] = defaultdict(dict)
    for endpoint in listed:
        paths[endpoint.path][endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Everturn",
            "version": __version__,
            "summary": "A self-hosted AI agent that never loses a turn.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_path or "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "security": [{}, {"token": []}, {"cookie": []}],
        "paths": dict(paths),
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "An API token (evt_…)."},
                "cookie": {"type": "apiKey", "in": "cookie", "name": "everturn"},
            },
        },
    }


def _schemas(
    endpoints: list[AnyEndpoint], extra: tuple[TypeForm, ...]
) -> tuple[dict[TypeForm, JsonObject], JsonObject]:
    kinds: list[TypeForm] = [p.Problem, *extra]
    for endpoint in endpoints:
        kinds += [kind for kind in _kinds_of(endpoint) if kind not in kinds]
    made, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    problem = components["Problem"]
    problem["additionalProperties"] = True
    _close_by_length([made, components])
    return dict(zip(map(_key, kinds), made, strict=True)), components


def _close_by_length(node: object) -> None:
    """``items: false`` of a tuple says what maxItems says already, and generators of clients choke on it."""
    if isinstance(node, dict):
        if node.get("items") is False and "maxItems" in node:
            del node["items"]
        for value in node.values():
            _close_by_length(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            _close_by_length(value)


def _kinds_of(endpoint: AnyEndpoint) -> list[Json]:
    answers = endpoint.answer if isinstance(endpoint.answer, tuple) else (endpoint.answer,)
    kinds = [kind for kind in answers if kind is not None]
    kinds += [kind for kind in (*endpoint.also.values(), endpoint.streams) if kind is not None]
    kinds += [kind for kind in endpoint.contents.values() if kind not in (bytes, str)]
    if endpoint.has_body:
        kinds.append(endpoint.body)
    return kinds


def _key(kind: TypeForm) -> TypeForm:
    return repr(kind)


def _operation(endpoint: AnyEndpoint, schemas: dict[TypeForm, JsonObject]) -> JsonObject:
    operation: JsonObject = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "responses": _responses(endpoint, schemas),
    }
    parameters = [*_path_parameters(endpoint), *_query_parameters(endpoint), *_header_parameters(endpoint)]
    if parameters:
        operation["parameters"] = parameters
    if endpoint.has_body:
        content = {"application/json": {"schema": schemas[_key(endpoint.body)]}}
        operation["requestBody"] = {"required": endpoint.needs_body, "content": content}
    elif endpoint.takes:
        operation["requestBody"] = {"required": True, "content": _raw_content(endpoint.takes)}
    if endpoint.scope is None:
        operation["security"] = []
    else:
        operation["x-scope"] = str(endpoint.scope)
    return operation


def _operation_id(endpoint: AnyEndpoint) -> str:
    words = endpoint.path.replace("{", "").replace("}", "").strip("/").replace(".", "_").split("/")
    return "_".join([endpoint.method.lower(), *(word for word in words if word != "api")])


def _raw_content(takes: tuple[str, ...]) -> JsonObject:
    content: JsonObject = {}
    for media in takes:
        if media == "multipart/form-data":
            part = {"type": "string", "contentMediaType": "application/octet-stream"}
            schema = {"type": "object", "properties": {"file": part}, "required": ["file"]}
            content[media] = {"schema": schema}
        else:
            content[media] = {"schema": {"type": "string", "format": "binary"}}
    return content


# --- parameters --------------------------------------------------------------------------------------


def _path_parameters(endpoint: AnyEndpoint) -> list[JsonObject]:
    return [
        {
            "name": param.name,
            "in": "path",
            "required": True,
            "description": param.meaning,
            "schema": {"type": "string", "pattern": param.pattern},
        }
        for param in endpoint.params
    ]


def _query_parameters(endpoint: AnyEndpoint) -> list[JsonObject]:
    if endpoint.query is Nothing:
        return []
    named = msgspec.json.schema(endpoint.query)["$defs"]
    found = _inline(named[endpoint.query.__name__], named)
    required = set(found.get("required", ()))
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null({key: item for key, item in value.items() if key != "description"}),
            **({"description": value["description"]} if "description" in value else {}),
        }
        for name, value in found["properties"].items()
    ]


def _inline(node: Json, named: JsonObject) -> Json:
    """The schema with each ``$ref`` replaced by what it names: that is not among the components."""
    if isinstance(node, list):
        return [_inline(item, named) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        meant = named[node["$ref"].removeprefix("#/$defs/")]
        node = {key: value for key, value in meant.items() if key not in ("title", "description")} | {
            key: value for key, value in node.items() if key != "$ref"
        }
    return {key: _inline(value, named) for key, value in node.items()}


def _without_null(schema: JsonObject) -> JsonObject:
    """A query has no null: what is optional is left out."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    plain = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    if len(choices) == 1:
        return {**choices[0], **plain}
    return {**plain, "anyOf": choices} if choices else {**plain}


def _header_parameters(endpoint: AnyEndpoint) -> list[JsonObject]:
    return [
        {
            "name": name.removesuffix("s") if name == "Last-Event-IDs" else name,
            "in": "header",
            "required": False,
            "description": _HEADERS[name][0],
            "schema": _HEADERS[name][1],
        }
        for name in endpoint.headers
    ]


# --- answers -----------------------------------------------------------------------------------------


def _responses(endpoint: AnyEndpoint, schemas: dict[TypeForm, JsonObject]) -> JsonObject:
    responses = {str(endpoint.status): _success(endpoint, endpoint.answer, schemas)}
    for status, kind in endpoint.also.items():
        responses[str(status)] = _success(endpoint, kind, schemas)
    for status, codes in sorted(_errors(endpoint).items()):
        if str(status) not in responses:
            responses[str(status)] = {
                "description": "Codes: " + ", ".join(sorted(codes)) + ".",
                "content": {p.MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="Problem")}}},
            }
    if endpoint.query is not Nothing:
        text = "The address and the headers together are too long. The answer has no body."
        responses["431"] = {"description": text}
    return responses


def _success(endpoint: AnyEndpoint, kind: TypeForm, schemas: dict[TypeForm, JsonObject]) -> JsonObject:
    if endpoint.contents and kind is None:
        found = {media: {"schema": _content(one, schemas)} for media, one in endpoint.contents.items()}
        return {"description": "The content.", "content": found}
    if kind is None and endpoint.media == "application/json":
        return {"description": "Done."}
    if endpoint.media == EVENT_STREAM:
        return {"description": "Server-sent events.", "content": {EVENT_STREAM: _frames(kind, schemas)}}
    if kind is None:
        return {"description": "The content.", "content": {endpoint.media: {"schema": {}}}}
    content = {endpoint.media: {"schema": schemas[_key(kind)]}}
    if endpoint.streams is not None:
        content[EVENT_STREAM] = _frames((endpoint.streams,), schemas)
    return {"description": "Done.", "content": content}


def _content(kind: TypeForm, schemas: dict[TypeForm, JsonObject]) -> JsonObject:
    """``bytes`` and ``str`` are what they are; everything else is JSON."""
    if kind is bytes:
        return {"type": "string", "format": "binary"}
    return {"type": "string"} if kind is str else schemas[_key(kind)]


def _frames(kinds: tuple[TypeForm, ...], schemas: dict[TypeForm, JsonObject]) -> JsonObject:
    """One server-sent event: its ``data`` is JSON text that holds one of the kinds."""
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [schemas[_key(kind)] for kind in kinds]},
    }
    fields = {"id": {"type": "string"}, "event": {"type": "string"}, "retry": {"type": "integer"}}
    return {"schema": {"type": "object", "properties": {**fields, "data": data}}}


def _errors(endpoint: AnyEndpoint) -> dict[int, set[str]]:
    """What this endpoint can refuse with: its own reasons and those of every endpoint of its kind."""
    kinds: list[type[EverturnError]] = [
        p.WrongHost,
        p.CrossSite,
        p.OpenToTheWorld,
        Overloaded,
        *endpoint.errors,
    ]
    kinds += [Limit, p.Internal, p.NotReady, p.BadRequest]
    if endpoint.scope is not None:
        kinds += [SignInNeeded, ScopeMissing]
    if endpoint.params:
        kinds += [InvalidId, p.NoRoute]
    kinds.append(Invalid)
    if endpoint.writes:
        kinds += [p.NotJson, p.BadJson, p.BodyTooLarge, p.BodyTooSlow, p.Stopping]
    found: dict[int, set[str]] = defaultdict(set)
    for kind in kinds:
        found[kind.status].add(kind.code)
    return found
