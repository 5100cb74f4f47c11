"""Describe a request for a graph in OpenAPI: its body, its headers, and the answers that it may have."""

from collections.abc import Mapping, Sequence
from typing import Any

_HEADERS = {
    "X-Headway-Deadline": ("How long it may take: 600ms, 2s.", {"type": "string", "example": "600ms"}),
    "Idempotency-Key": (
        "Requests under one key have one answer, kept for ten minutes.",
        {"type": "string", "maxLength": 255},
    ),
    "X-Headway-Tenant": ("Whose request it is.", {"type": "string", "maxLength": 255}),
    "X-Headway-Priority": (
        "Higher goes first, under policies that respect it.",
        {"type": "integer", "minimum": 0, "maximum": 100},
    ),
    "traceparent": ("W3C trace context; passed on in the answer.", {"type": "string"}),
    "tracestate": ("W3C trace context; passed on in the answer.", {"type": "string"}),
}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}, "field": {"type": "string"}},
}
_OUTPUT = {"type": "object", "required": ["output"], "properties": {"output": {}}}
_MEANINGS = {
    400: "The body did not come whole.",
    401: "The token is missing or wrong.",
    403: "Sent by a web page of another site.",
    404: "No such graph.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    422: "A part of the request is wrong; the field is named.",
    429: "Not now: see Retry-After.",
    500: "A task failed; it is named with its reason.",
    503: "The server drains.",
    504: "The deadline passed; what was late is named.",
}
_ANSWERS: dict[str, dict[str, Any]] = {
    "200": {"description": "The output.", "content": {"application/json": {"schema": _OUTPUT}}},
    **{
        str(status): {"description": meaning, "content": {"application/json": {"schema": _ERROR}}}
        for status, meaning in _MEANINGS.items()
    },
}


def path_item(names: Sequence[str], examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return what OpenAPI says of ``/v1/graphs/{name}``, with an example of each graph that has one."""
    body: dict[str, Any] = {
        "schema": {
            "type": "object",
            "required": ["input"],
            "additionalProperties": False,
            "properties": {"input": {"description": 'Any JSON value; bytes as {"base64": "…"}.'}},
        }
    }
    if examples:
        body["examples"] = {name: {"value": {"input": value}} for name, value in sorted(examples.items())}
    headers = [
        {"name": name, "in": "header", "required": False, "description": about, "schema": schema}
        for name, (about, schema) in _HEADERS.items()
    ]
    path = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "enum": list(names)}}
    content = {"application/json": body, "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    operation = {
        "operationId": "call",
        "summary": "Answer a request: the output of a graph for an input.",
        "parameters": [path, *headers],
        "requestBody": {"required": True, "content": content},
        "responses": _ANSWERS,
    }
    return {"post": operation}
