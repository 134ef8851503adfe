"""The interface table and what is generated from it."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chipset import _interface


@pytest.fixture(scope="module")
def tables(repository: Path):
    """The module that reads the table, from csrc/interface."""
    spec = importlib.util.spec_from_file_location(
        "interface_table", repository / "csrc" / "interface" / "table.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_generated_files_match_the_table(repository: Path):
    done = subprocess.run(
        [sys.executable, str(repository / "csrc/interface/generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_check_sees_drift(repository: Path, tmp_path: Path):
    """A header edited by hand, and a frozen function moved, are both errors."""
    for part in ("csrc/interface", "csrc/include", "docs", "core/chipset"):
        (tmp_path / part).mkdir(parents=True)
    shutil.copytree(repository / "csrc/interface", tmp_path / "csrc/interface", dirs_exist_ok=True)
    shutil.copytree(repository / "csrc/include", tmp_path / "csrc/include", dirs_exist_ok=True)
    for name in ("docs/interfaces.md", "core/chipset/_interface.py"):
        shutil.copy(repository / name, tmp_path / name)
    generate = [sys.executable, str(tmp_path / "csrc/interface/generate.py"), "--check"]
    assert subprocess.run(generate, check=False).returncode == 0

    header = tmp_path / "csrc/include/chipset/chipset.h"
    text = header.read_text()
    header.write_text(text.replace("#define CHIPSET_DTYPE_F32 8", "#define CHIPSET_DTYPE_F32 9"))
    done = subprocess.run(generate, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "chipset.h is not what the table generates" in done.stderr
    header.write_text(text)

    table = tmp_path / "csrc/interface/device.toml"
    table.write_text(
        table.read_text().replace('name = "mem_alloc"\nslot = 4', 'name = "mem_get"\nslot = 4')
    )
    done = subprocess.run(generate, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "function 4 was ['mem_alloc'" in done.stderr
    assert "only appending is legal" in done.stderr

    snapshot = tmp_path / "csrc/interface/abi-1.0.json"
    frozen = snapshot.read_text()
    done = subprocess.run([*generate[:-1], "--freeze"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "only appending is legal" in done.stderr
    assert snapshot.read_text() == frozen, "a released version is never frozen again"


def test_only_appending_is_compatible(tables):
    table = tables.load()
    old = tables.snapshot(table)

    def faults(change) -> list[str]:
        fresh = tables.load()
        change(fresh)
        return tables.incompatibilities(old, tables.snapshot(fresh))

    def append_function(t):
        last = t.functions[-1]
        t.functions.append(tables.Function("new", last.slot + 1, "fused", False, [], "", "", 1))

    def append_field(t):
        args = next(s for s in t.structs if s.name == "gemm_args")
        args.fields.append(tables.parse_field(["int64_t", "extra", ""], "test"))

    def insert_field(t):
        args = next(s for s in t.structs if s.name == "gemm_args")
        args.fields.insert(2, tables.parse_field(["int64_t", "extra", ""], "test"))

    def retype_field(t):
        args = next(s for s in t.structs if s.name == "gemm_args")
        args.fields[-1] = tables.parse_field(["int64_t", "beta", ""], "test")

    def grow_frozen(t):
        tensor = next(s for s in t.structs if s.name == "tensor")
        tensor.fields.append(tables.parse_field(["int64_t", "extra", ""], "test"))

    def append_value(t):
        t.enums[0].values.append(("NEW", 99, ""))

    def renumber_value(t):
        name, value, doc = t.enums[0].values[1]
        t.enums[0].values[1] = (name, value + 50, doc)

    def swap_functions(t):
        t.functions[0], t.functions[1] = t.functions[1], t.functions[0]

    def remove_rule(t):
        t.rules.pop()

    for legal in (append_function, append_field, append_value):
        assert faults(legal) == [], legal.__name__
    for illegal in (
        insert_field,
        retype_field,
        grow_frozen,
        renumber_value,
        swap_functions,
        remove_rule,
    ):
        assert faults(illegal), illegal.__name__


def test_python_view_has_the_layout_of_the_table(tables):
    snapshot = tables.snapshot(tables.load())
    for name, struct in snapshot["structs"].items():
        kind = getattr(_interface, "".join(p.capitalize() for p in name.split("_")))
        assert ctypes.sizeof(kind) == struct["size"], name
        for field, _, offset, size in struct["fields"]:
            descriptor = getattr(kind, field)
            assert (descriptor.offset, descriptor.size) == (offset, size), f"{name}.{field}"
    assert ctypes.sizeof(_interface.Api) == snapshot["api"]["size"]
    assert [f.name for f in _interface.FUNCTIONS] == [f[0] for f in snapshot["api"]["functions"]]


def test_snapshot_of_this_version_is_committed(repository: Path):
    name = f"abi-{_interface.MAJOR}.{_interface.MINOR}.json"
    snapshot = json.loads((repository / "csrc/interface" / name).read_text())
    assert (snapshot["major"], snapshot["minor"]) == (_interface.MAJOR, _interface.MINOR)


@pytest.mark.parametrize(
    ("compiler", "standard", "suffix"),
    [("cc", "c11", "c"), ("c++", "c++17", "cpp"), ("c++", "c++20", "cpp")],
)
def test_header_compiles_strictly(compiler, standard, suffix, repository: Path, tmp_path: Path):
    source = tmp_path / f"check.{suffix}"
    source.write_text('#include "chipset/abi_check.h"\nint main(void) { return 0; }\n')
    command = [compiler, f"-std={standard}", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    command += [f"-I{repository / 'csrc/include'}", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_function_and_struct_is_specified(tables):
    """The header is the specification: no function, struct or rule without words."""
    table = tables.load()
    for f in table.functions:
        assert len(f.doc) >= 9, f.name
        assert f.params, f.name
    for s in table.structs:
        assert s.doc, s.name
    assert sum(f.required for f in table.functions) >= 20


def lacks(table, function) -> list[str]:
    """What a function's specification does not say."""
    statuses = [name for name, _, _ in next(e for e in table.enums if e.name == "status").values]
    dtypes = [name for name, _, _ in next(e for e in table.enums if e.name == "dtype").values]
    by_name = {s.name: s for s in table.structs}
    types = [p.type for p in function.params]
    types += [
        f.type
        for p in function.params
        if (s := by_name.get(p.type.removeprefix("const chipset_").removesuffix("*")))
        for f in s.fields
    ]
    takes_values = "const chipset_tensor*" in types or any(
        p.name == "dtype" for p in function.params
    )

    def names_one_of(text: str, names: list[str]) -> bool:
        return bool(set(re.findall(r"[A-Z][A-Z0-9_]+", text)) & set(names))

    missing = []
    refers = re.match(r"(As in|Those of|Those that)", function.dtypes)
    if takes_values and not (refers or names_one_of(function.dtypes, [*dtypes, "OPAQUE"])):
        missing.append("dtypes")
    if len(function.edges) < 20:
        missing.append("edge cases")
    if not names_one_of(function.errors, statuses[1:]):
        missing.append("errors")
    return missing


def test_every_function_names_its_dtypes_edge_cases_and_errors(tables, repository: Path):
    table = tables.load()
    found = {f.name: missing for f in table.functions if (missing := lacks(table, f))}
    assert found == {}
    header = (repository / "csrc/include/chipset/chipset.h").read_text()
    assert header.count("// Errors: ") == header.count("// Edge cases: ") == len(table.functions)


@pytest.mark.parametrize("part", ["dtypes", "edges", "errors"])
def test_a_function_without_its_dtypes_edge_cases_or_errors_is_seen(tables, part: str):
    table = tables.load()
    for name in ("softmax", "send"):
        f = next(f for f in table.functions if f.name == name)
        assert lacks(table, f) == []
        label = {"edges": "edge cases"}.get(part, part)
        assert lacks(table, dataclasses.replace(f, **{part: ""})) == [label]
