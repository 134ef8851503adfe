"""The waist holds: above it no chip's name, below it no framework's."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHIPS = ("cuda", "rocm", "hip", "ascend", "npu", "xpu", "gcu", "mlu", "mps", "opencl")
CHIP_WORD = re.compile(rf"(?<![a-z])({'|'.join(CHIPS)})(?![a-z])", re.IGNORECASE)
TORCH_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"](torch|ATen|c10)/', re.MULTILINE)


def native_sources(*folders: str) -> list[Path]:
    return [
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".c", ".cpp", ".h", ".hpp", ".inc"}
    ]


def code_of(path: Path) -> list[tuple[int, str]]:
    """Lines of code with their numbers: names and strings, without comments and docstrings."""
    tree = ast.parse(path.read_text())
    docs = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    words = []
    for node in ast.walk(tree):
        if node in docs:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.append((node.lineno, node.value))
        elif isinstance(node, ast.Name):
            words.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute):
            words.append((node.lineno, node.attr))
    return words


def test_layers_name_no_chip() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match.group()}"
        for path in sorted((ROOT / "layers").rglob("*.py"))
        for line, word in code_of(path)
        if (match := CHIP_WORD.search(word))
    ]
    assert not found, found


def test_bridge_and_runtime_name_no_chip() -> None:
    pattern = re.compile(rf'"[^"\n]*{CHIP_WORD.pattern}[^"\n]*"', re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in native_sources("csrc/bridge", "csrc/runtime")
        for match in pattern.finditer(path.read_text())
        if not match.group().startswith(('"ATen/', '"c10/', '"torch/'))
    ]
    assert not found, found


@pytest.mark.parametrize("folder", ["csrc/include", "csrc/runtime", "plugins", "examples"])
def test_no_torch_header_below_the_bridge(folder: str) -> None:
    sources = native_sources(folder)
    assert sources, f"{folder} has no native sources; has it moved?"
    found = [str(path) for path in sources if TORCH_INCLUDE.search(path.read_text())]
    assert not found, found


def test_no_plugin_imports_torch_or_a_sibling() -> None:
    plugins = [path for path in (ROOT / "plugins").iterdir() if path.is_dir()]
    packages = {f"chipset_{path.name}" for path in plugins} | {"torch"}
    for plugin in plugins:
        for path in (plugin / f"chipset_{plugin.name}").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                used = {name.split(".")[0] for name in names} & packages
                assert used <= {f"chipset_{plugin.name}"}, f"{path} imports {used}"


def test_generated_files_are_current(run_python) -> None:
    done = run_python(str(ROOT / "csrc/interface/generate.py"), "--check")
    assert done.returncode == 0, done.stdout + done.stderr
