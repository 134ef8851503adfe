"""The plugin's own declarations of OpenCL against the Khronos headers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def test_every_constant_and_function_is_as_khronos_has_it(repository: Path, tmp_path: Path) -> None:
    if not Path("/usr/include/CL/cl.h").exists():
        pytest.skip("needs the Khronos headers (Debian: opencl-c-headers)")
    source = repository / "plugins/opencl/src/cl.h"
    text = source.read_text()
    # The tables alone, over the types of the real header.
    tables = text[text.index("#define OPENCL_ERRORS") : text.index("#define OPENCL_CONSTANT(")]
    functions = text[text.index("#define OPENCL_FUNCTIONS") : text.index("struct Functions")]
    program = f"""
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <cstdint>
using BuildCallback = void (*)(cl_program, void*);
using EventCallback = void (*)(cl_event, cl_int, void*);
using ContextCallback = void (*)(const char*, const void*, size_t, void*);
{tables}
{functions}
#define CONSTANT(name, value) static_assert(CL_##name == (value), #name);
OPENCL_ERRORS(CONSTANT)
OPENCL_CONSTANTS(CONSTANT)
#define FUNCTION(result, name, parameters) result (*name) parameters = cl##name;
OPENCL_FUNCTIONS(FUNCTION)
"""
    (tmp_path / "check.cpp").write_text(program)
    done = subprocess.run(
        ["c++", "-std=c++20", "-fsyntax-only", tmp_path / "check.cpp"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
