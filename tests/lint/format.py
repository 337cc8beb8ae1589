"""Checks that clang-format 14 would change nothing.

  format.py [--fix] [FILE...]     all C++ files of the repository when none given

Exit status 77 (skipped) without clang-format 14: other versions differ in detail.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import tree


def find_clang_format():
    """The path of clang-format 14, or None."""
    for name in ("clang-format-14", "clang-format"):
        path = shutil.which(name)
        if path is None:
            continue
        version = subprocess.run([path, "--version"], capture_output=True,
                                 text=True, check=True).stdout
        if re.search(r"version 14\.", version):
            return path
    return None


def unformatted(program, files, fix=False):
    """The files that clang-format would change; `fix` changes them instead."""
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    result = subprocess.run([program, "--style=file", *mode, *files],
                            capture_output=True, text=True, check=False)
    return sorted({line.split(":")[0] for line in result.stderr.splitlines()
                   if "error:" in line})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fix", action="store_true")
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    program = find_clang_format()
    if program is None:
        print("format: skipped: no clang-format 14 "
              "(tools/setup.sh --dev on Debian 12 installs it)")
        return 77
    files = [os.path.abspath(path) for path in arguments.files] or [
        str(tree.root() / path) for path in tree.paths()
        if path.endswith((".h", ".cc", ".cu"))]
    errors = unformatted(program, files, arguments.fix) if files else []
    for error in errors:
        print(f"{os.path.relpath(error, tree.root())}: out of shape")
    print(f"format: {len(files)} files, {len(errors)} out of shape"
          + ("; fix them with python3 tests/lint/format.py --fix" if errors else ""))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
