"""The folders of the installed ``chipset`` package that a plugin's build needs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

# Beside the package in a wheel; in the source tree when chipset is installed in place.
INCLUDE = ("include", "../../csrc/include")
CMAKE = ("cmake", "../../cmake")


def include_folder() -> Path:
    """The folder to give the compiler with ``-I``; it holds ``chipset/chipset.h``.

    Raises:
        FileNotFoundError: chipset is not installed, or its header is missing.
    """
    return _find(INCLUDE, "chipset/chipset.h")


def cmake_folder() -> Path:
    """The folder to give CMake as ``chipset_DIR``; it holds ``chipsetConfig.cmake``.

    Raises:
        FileNotFoundError: chipset is not installed, or its CMake package is missing.
    """
    return _find(CMAKE, "chipsetConfig.cmake")


def _find(candidates: tuple[str, ...], file: str) -> Path:
    spec = find_spec("chipset")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("chipset is not installed; run 'pip install chipset'")
    package = Path(spec.origin).parent
    for candidate in candidates:
        folder = (package / candidate).resolve()
        if (folder / file).is_file():
            return folder
    raise FileNotFoundError(f"{package} holds no '{file}'; install chipset again")
