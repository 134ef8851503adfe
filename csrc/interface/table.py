"""Reads the interface table (interface/*.toml) and computes the layout of everything in it.

The layout is that of an LP64 C ABI (every platform Chipset runs on), computed with ctypes, which
follows the platform's C compiler; the generated static_asserts confirm it at each compilation.
"""

from __future__ import annotations

import ctypes
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Reading order is the order of the header; other files follow by name.
FIRST_FILES = ["types.toml", "device.toml", "compute.toml", "fused.toml", "collectives.toml"]

SCALARS: dict[str, Any] = {
    "char": ctypes.c_char,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "int16_t": ctypes.c_int16,
    "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}
# The fields of chipset_api that come before the functions.
API_FIELDS = [
    ("uint32_t", "struct_size", "sizeof(chipset_api) as the plugin was compiled."),
    ("uint16_t", "major", "CHIPSET_VERSION_MAJOR as the plugin was compiled."),
    ("uint16_t", "minor", "CHIPSET_VERSION_MINOR as the plugin was compiled."),
    ("const char*", "name", "The plugin's name, as in `--device NAME`."),
    ("const char*", "version", "The plugin's own version."),
    ("const char*", "build_info", "Free text for bug reports: compiler, libraries. May be NULL."),
    ("uint64_t", "flags", "Zero; reserved."),
]


class TableError(Exception):
    """The interface table breaks its own format."""


@dataclass(frozen=True)
class Field:
    """One member of a struct, or one parameter of a function."""

    type: str
    name: str  # without array brackets; for a function pointer, the bare name
    doc: str
    declarator: str  # as written in C after the type
    length: int | None  # elements of an array member

    @property
    def is_function(self) -> bool:
        return self.declarator.startswith("(")

    @property
    def c(self) -> str:
        """The C declaration without the semicolon."""
        return f"{self.type} {self.declarator}"


@dataclass(frozen=True)
class Struct:
    name: str
    doc: str
    fields: list[Field]
    frozen: bool


@dataclass(frozen=True)
class Function:
    name: str
    slot: int
    group: str
    required: bool
    params: list[Field]
    doc: str
    composed: str
    since: int
    dtypes: str = ""  # empty only where the function has neither tensors nor a dtype
    edges: str = ""
    errors: str = ""

    @property
    def signature(self) -> str:
        return ", ".join(p.c for p in self.params)

    @property
    def particulars(self) -> list[tuple[str, str]]:
        """What every specification says after its first words: (label, text)."""
        parts = [("Dtypes", self.dtypes), ("Edge cases", self.edges), ("Errors", self.errors)]
        return [(label, text) for label, text in parts if text]


@dataclass(frozen=True)
class Enum:
    name: str
    doc: str
    values: list[tuple[str, int, str]]


@dataclass
class Table:
    major: int = 0
    minor: int = 0
    limits: dict[str, tuple[int, str]] = field(default_factory=dict)
    enums: list[Enum] = field(default_factory=list)
    handles: list[tuple[str, str]] = field(default_factory=list)
    structs: list[Struct] = field(default_factory=list)
    rules: list[tuple[str, str]] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)


def parse_field(entry: list[str], where: str) -> Field:
    """Turns [type, declarator, doc] of the table into a Field."""
    if len(entry) not in (2, 3):
        raise TableError(f"{where}: a field is [type, name, doc], found {entry!r}")
    ctype, declarator = entry[0], entry[1]
    doc = entry[2] if len(entry) == 3 else ""
    if pointer := re.match(r"\(\*(\w+)\)\(.*\)$", declarator):
        return Field(ctype, pointer[1], doc, declarator, None)
    plain = re.match(r"(\w+)(?:\[(\d+)\])?$", declarator)
    if not plain:
        raise TableError(f"{where}: cannot read the declarator {declarator!r}")
    return Field(ctype, plain[1], doc, declarator, int(plain[2]) if plain[2] else None)


def load(folder: Path = HERE) -> Table:
    """Reads every table file and checks that names and slots are unique."""
    table = Table()
    names = [n for n in FIRST_FILES if (folder / n).exists()]
    names += sorted(p.name for p in folder.glob("*.toml") if p.name not in FIRST_FILES)
    for name in names:
        with (folder / name).open("rb") as handle:
            read_file(table, tomllib.load(handle), name)
    table.functions.sort(key=lambda f: f.slot)
    check_unique(table)
    return table


def read_file(table: Table, data: dict[str, Any], name: str) -> None:
    if "version" in data:
        table.major, table.minor = data["version"]["major"], data["version"]["minor"]
    for key, (value, doc) in data.get("limits", {}).items():
        table.limits[key] = (value, doc)
    for item in data.get("enum", []):
        values = [(v[0], v[1], v[2] if len(v) > 2 else "") for v in item["values"]]
        table.enums.append(Enum(item["name"], item["doc"], values))
    for item in data.get("handle", []):
        table.handles.append((item["name"], item["doc"]))
    for item in data.get("struct", []):
        where = f"{name}: struct {item['name']}"
        fields = [parse_field(f, where) for f in item["fields"]]
        table.structs.append(
            Struct(item["name"], item.get("doc", ""), fields, item.get("frozen", False))
        )
    for item in data.get("rule", []):
        table.rules.append((item["id"], item["text"]))
    for item in data.get("function", []):
        where = f"{name}: function {item['name']}"
        table.functions.append(
            Function(
                name=item["name"],
                slot=item["slot"],
                group=item["group"],
                required=item.get("required", False),
                params=[parse_field(p, where) for p in item["params"]],
                doc=item["doc"],
                composed=item.get("composed", ""),
                since=item.get("since", 0),
                dtypes=item.get("dtypes", ""),
                edges=item.get("edges", ""),
                errors=item.get("errors", ""),
            )
        )


def check_unique(table: Table) -> None:
    groups = {
        "function": [f.name for f in table.functions],
        "slot": [f.slot for f in table.functions],
        "struct or handle": [s.name for s in table.structs] + [h[0] for h in table.handles],
        "enum": [e.name for e in table.enums],
        "rule": [r[0] for r in table.rules],
    }
    for kind, values in groups.items():
        twice = {v for v in values if values.count(v) > 1}
        if twice:
            raise TableError(f"the interface table defines {kind} {sorted(twice)} twice")


def layouts(table: Table) -> dict[str, Any]:
    """ctypes structures of all structs, by name; function pointers are void pointers."""
    known: dict[str, Any] = {}

    def member(f: Field, owner: str) -> Any:
        ctype = f.type.replace("const ", "").strip()
        if f.is_function or ctype.endswith("*"):
            base: Any = ctypes.c_void_p
        elif ctype in SCALARS:
            base = SCALARS[ctype]
        elif ctype.removeprefix("chipset_") in known:
            base = known[ctype.removeprefix("chipset_")]
        elif any(ctype == f"chipset_{h[0]}" for h in table.handles):
            base = ctypes.c_void_p
        elif any(ctype == f"chipset_{e.name}" for e in table.enums):
            base = ctypes.c_int32
        else:
            raise TableError(f"struct {owner}: unknown type {f.type!r} of field {f.name}")
        return base * f.length if f.length else base

    for s in table.structs:
        fields = [(f.name, member(f, s.name)) for f in s.fields]
        known[s.name] = type(s.name, (ctypes.Structure,), {"_fields_": fields})
    head = [(n, member(Field(t, n, "", n, None), "api")) for t, n, _ in API_FIELDS]
    slots = [(f.name, ctypes.c_void_p) for f in table.functions]
    known["api"] = type("api", (ctypes.Structure,), {"_fields_": head + slots})
    return known


def snapshot(table: Table) -> dict[str, Any]:
    """Everything that a compiled plugin relies on: names, order, types, offsets, sizes, values."""
    sizes = layouts(table)
    structs = {}
    for s in table.structs:
        layout = sizes[s.name]
        structs[s.name] = {
            "frozen": s.frozen,
            "size": ctypes.sizeof(layout),
            "fields": [
                [f.name, f.c, getattr(layout, f.name).offset, getattr(layout, f.name).size]
                for f in s.fields
            ],
        }
    api = sizes["api"]
    return {
        "major": table.major,
        "minor": table.minor,
        "limits": {k: v[0] for k, v in table.limits.items()},
        "enums": {e.name: {v[0]: v[1] for v in e.values} for e in table.enums},
        "handles": [h[0] for h in table.handles],
        "structs": structs,
        "api": {
            "size": ctypes.sizeof(api),
            "head": [[n, t, getattr(api, n).offset] for t, n, _ in API_FIELDS],
            "functions": [
                [f.name, f.signature, getattr(api, f.name).offset, f.required]
                for f in table.functions
            ],
        },
        "rules": sorted(r[0] for r in table.rules),
    }


def incompatibilities(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What in `new` is not an append to the frozen snapshot `old`; empty when all is well."""
    version = f"{old['major']}.{old['minor']}"
    faults: list[str] = []

    def fault(text: str) -> None:
        faults.append(f"{text} (frozen by version {version}; only appending is legal)")

    for name, value in old["limits"].items():
        if new["limits"].get(name) != value:
            fault(f"limit {name} was {value}, is {new['limits'].get(name)}")
    for enum, values in old["enums"].items():
        for name, value in values.items():
            now = new["enums"].get(enum, {}).get(name)
            if now != value:
                fault(f"enum {enum}.{name} was {value}, is {now}")
    for name in set(old["handles"]) - set(new["handles"]):
        fault(f"handle {name} is gone")
    for name in set(old["rules"]) - set(new["rules"]):
        fault(f"rule {name} is gone")
    for name, was in old["structs"].items():
        now = new["structs"].get(name)
        if now is None:
            fault(f"struct {name} is gone")
            continue
        for i, entry in enumerate(was["fields"]):
            if i >= len(now["fields"]) or now["fields"][i] != entry:
                found = now["fields"][i] if i < len(now["fields"]) else "nothing"
                fault(f"struct {name}: field {i} was {entry}, is {found}")
        if was["frozen"] and (now["size"] != was["size"] or not now["frozen"]):
            fault(f"struct {name} never grows, but its size was {was['size']}, is {now['size']}")
    if new["api"]["head"] != old["api"]["head"]:
        fault("the first fields of chipset_api changed")
    for i, entry in enumerate(old["api"]["functions"]):
        functions = new["api"]["functions"]
        if i >= len(functions) or functions[i] != entry:
            found = functions[i] if i < len(functions) else "nothing"
            fault(f"function {i} was {entry}, is {found}")
    return faults
