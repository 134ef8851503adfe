"""Compiles programs with NVRTC or hipRTC: a JSON request on stdin, the faults on stdout."""

from __future__ import annotations

import ctypes
import json
import re
import sys


class Compiler:
    """NVRTC or hipRTC, whose C functions differ in the prefix of their names alone."""

    def __init__(self, library: str, prefix: str) -> None:
        self.library = ctypes.CDLL(library)
        self.prefix = prefix

    def call(self, name: str, *arguments: object) -> int:
        return int(getattr(self.library, self.prefix + name)(*arguments))

    def errors(self, source: str, option: str) -> str:
        """What the compiler has against a program; empty if nothing."""
        program = ctypes.c_void_p()
        created = self.call(
            "CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
        assert created == 0, f"{self.prefix}CreateProgram answered {created}"
        options = (ctypes.c_char_p * 1)(option.encode())
        status = self.call("CompileProgram", program, 1, options)
        size = ctypes.c_size_t()
        self.call("GetProgramLogSize", program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        self.call("GetProgramLog", program, log)
        self.call("DestroyProgram", ctypes.byref(program))
        return f"{status}: {log.value.decode()}" if status else ""


def main() -> None:
    request = json.load(sys.stdin)
    compiler = Compiler(request["library"], request["prefix"])
    wrong, compiled = [], 0
    for option in request["options"]:
        for program in request["programs"]:
            compiled += 1
            if log := compiler.errors(program, option):
                kernels = re.findall(r"^KERNEL\((\w+)\)", program, re.MULTILINE)
                wrong.append(f"{option}, {kernels}: {log[:800]}")
    broken = compiler.errors("KERNEL(broken)(", request["options"][0])
    json.dump({"compiled": compiled, "broken": broken, "wrong": wrong}, sys.stdout)


main()
