"""The API page: a plain list of endpoints made from the OpenAPI document. No script, no CDN."""

from __future__ import annotations

from html import escape

from everturn.domain.json_types import JsonObject

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
:root{color-scheme:light dark} h2{margin-top:2.5rem;border-bottom:1px solid #8886}
details{margin:.3rem 0;padding:.3rem .6rem;border-radius:6px}
details[open]{background:#8881} summary{cursor:pointer} code,pre{font:14px ui-monospace,monospace}
b{display:inline-block;min-width:4.2rem;font:600 13px ui-monospace,monospace} table{border-collapse:collapse}
td,th{padding:.15rem .8rem .15rem 0;text-align:left;vertical-align:top} small{opacity:.75}
"""


def page(document: JsonObject) -> bytes:
    """The whole API on one page that works without script."""
    sections = [_section(tag, document) for tag in document["tags"]]
    schemas = "".join(_schema(name, value) for name, value in sorted(_components(document).items()))
    text = (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Everturn API</title><style>{_STYLE}</style>"
        f"<h1>Everturn API {escape(_version(document))}</h1>"
        "<p>The same as a document for tools: <a href=openapi.json>openapi.json</a>. Writes take JSON only. "
        "Errors are problem documents (RFC 9457) with a stable <code>code</code>.</p>"
        f"{''.join(sections)}<h2>Types</h2>{schemas}</html>"
    )
    return text.encode()


def _version(document: JsonObject) -> str:
    return str(document["info"]["version"])


def _components(document: JsonObject) -> JsonObject:
    found: JsonObject = document["components"]["schemas"]
    return found


def _section(tag: JsonObject, document: JsonObject) -> str:
    rows = [
        _endpoint(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    ]
    head = f"<h2>{escape(tag['name'].capitalize())}</h2><p>{escape(tag['description'])}</p>"
    return head + "".join(rows) if rows else ""


def _endpoint(path: str, method: str, operation: JsonObject) -> str:
    scope = operation.get("x-scope", "anyone")
    parameters = "".join(
        f"<tr><td><code>{escape(item['name'])}</code><td>{escape(item['in'])}"
        f"<td>{escape(item.get('description', ''))}"
        for item in operation.get("parameters", ())
    )
    answers = "".join(
        f"<tr><td>{escape(status)}<td>{escape(answer['description'])} {_types(answer)}"
        for status, answer in operation["responses"].items()
    )
    body = _types(operation["requestBody"]) if "requestBody" in operation else ""
    return (
        f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code> "
        f"<small>{escape(operation['summary'])}</small></summary><p>Scope: {escape(scope)}."
        f"{' Body: ' + body if body else ''}</p><table>{parameters}{answers}</table></details>"
    )


def _types(part: JsonObject) -> str:
    return ", ".join(
        f"<code>{escape(media)}</code> {_reference(content.get('schema', {}))}"
        for media, content in part.get("content", {}).items()
    )


def _reference(schema: JsonObject) -> str:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    return f'<a href="#{escape(name)}">{escape(name)}</a>' if name else ""


def _schema(name: str, schema: JsonObject) -> str:
    fields = "".join(
        f"<tr><td><code>{escape(field)}</code><td>{_kind(value)}"
        for field, value in schema.get("properties", {}).items()
    )
    about = escape(str(schema.get("description", "")))
    return (
        f'<details id="{escape(name)}"><summary><code>{escape(name)}</code></summary>'
        f"<p>{about}</p><table>{fields}</table></details>"
    )


def _kind(value: JsonObject) -> str:
    if "$ref" in value:
        return _reference(value)
    if "anyOf" in value:
        return " | ".join(_kind(choice) for choice in value["anyOf"])
    if "items" in value:
        return f"list of {_kind(value['items']) if isinstance(value['items'], dict) else ''}"
    return escape(str(value.get("type", value.get("const", value.get("enum", "any")))))
