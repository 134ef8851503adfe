"""The plugin stays small enough to be read at a sitting."""

from __future__ import annotations

from pathlib import Path

BUDGET = 900  # lines without blanks and comments; Khronos's headers are not the plugin's own
MARKS = {".cpp": "//", ".h": "//", ".py": "#", ".txt": "#"}


def lines_of_code(path: Path) -> int:
    lines = (line.strip() for line in path.read_text().splitlines())
    return sum(1 for line in lines if line and not line.startswith(MARKS[path.suffix]))


def test_line_budget(repository: Path) -> None:
    plugin = repository / "plugins" / "opencl"
    files = [
        *plugin.glob("src/*"),
        *plugin.glob("chipset_opencl/*.py"),
        plugin / "CMakeLists.txt",
    ]
    lines = sum(map(lines_of_code, files))
    print(f"opencl: {lines} lines")
    assert 300 < lines <= BUDGET
