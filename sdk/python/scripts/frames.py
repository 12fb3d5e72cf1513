"""Writes the types of all frames from docs/schema: python3 scripts/frames.py [--check]."""

from __future__ import annotations

import json
import keyword
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
TARGETS = {
    "client": ROOT / "sdk/python/src/freeslot/_client_frames.py",
    "node": ROOT / "sdk/python/src/freeslot/_node_frames.py",
}
SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


def type_of(schema: Any) -> str:
    if schema is True or not isinstance(schema, dict):
        return "Any"
    if "$ref" in schema:
        return f'"{schema["$ref"].rpartition("/")[2]}"'
    if "const" in schema:
        return f"Literal[{json.dumps(schema['const'])}]"
    if "enum" in schema:
        return f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return f"Union[{', '.join(type_of(one) for one in schema[several])}]"
    kind = schema.get("type")
    if isinstance(kind, list):
        return f"Union[{', '.join(type_of({**schema, 'type': one}) for one in kind)}]"
    if kind == "array":
        return f"list[{type_of(schema.get('items', True))}]"
    if kind == "object":
        extra = schema.get("additionalProperties")
        return f"dict[str, {type_of(extra)}]" if isinstance(extra, dict) else "dict[str, Any]"
    return SIMPLE.get(str(kind), "Any")


def comment(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, 110, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def lines_of(name: str, schema: dict[str, Any]) -> list[str]:
    text = schema.get("description", "")
    if schema.get("type") != "object" or "properties" not in schema:
        return ["", *comment(text, ""), f"{name} = {type_of(schema)}"]
    plain = all(field.isidentifier() and not keyword.iskeyword(field) for field in schema["properties"])
    if plain:
        out = ["", "", f"class {name}(TypedDict):"]
        if text:
            out += [f'    """{text}"""', ""]
    else:  # a field that is a word of Python
        out = ["", *comment(text, ""), f"{name} = TypedDict(", f'    "{name}",', "    {"]
    indent = "    " if plain else "        "
    required = schema.get("required", [])
    for field, its in schema["properties"].items():
        if isinstance(its, dict) and its.get("description"):
            out += comment(its["description"], indent)
        kind = type_of(its)
        kind = kind if field in required else f"NotRequired[{kind}]"
        out.append(f"{indent}{field}: {kind}" if plain else f'{indent}"{field}": {kind},')
    return out if plain else [*out, "    },", ")"]


def module(kind: str) -> str:
    schema = json.loads((ROOT / f"docs/schema/{kind}-frames.json").read_text())
    definitions = schema["$defs"]
    # Classes first: the others name them when the module is loaded.
    order = sorted(definitions, key=lambda name: "properties" not in definitions[name])
    head = [
        f'"""The frames of docs/schema/{kind}-frames.json. Written by scripts/frames.py; do not edit."""',
        "",
        "from typing import Any, Literal, NotRequired, TypedDict, Union",
    ]
    body = [line for name in order for line in lines_of(name, definitions[name])]
    return "\n".join(head + body) + "\n"


def main() -> None:
    for kind, target in TARGETS.items():
        text = module(kind)
        if "--check" not in sys.argv:
            target.write_text(text)
        elif not target.exists() or target.read_text() != text:
            sys.exit(f"{target.name} is not what docs/schema makes; run python3 sdk/python/scripts/frames.py")


if __name__ == "__main__":
    main()
