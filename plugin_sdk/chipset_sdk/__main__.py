"""Prints a folder for a plugin's build: ``python -m chipset_sdk include|cmake``."""

from __future__ import annotations

import argparse

import chipset

FOLDERS = {"include": chipset.include_dir, "cmake": chipset.cmake_dir}


def main() -> None:
    parser = argparse.ArgumentParser(prog="chipset_sdk", description=__doc__)
    parser.add_argument("folder", choices=FOLDERS)
    print(FOLDERS[parser.parse_args().folder]())


if __name__ == "__main__":
    main()
