"""What a compiler says of a file that must not compile.

  compile_errors.py FILE COMPILER FLAG...

Comments of FILE that begin with "error:" are texts of the errors that it is to
give, each for the line that follows: no more of them, no others, and each error
names that line.
"""

import collections
import os
import re
import subprocess
import sys

EXPECTED = re.compile(r"^\s*// error: (.+)$")
ERROR = re.compile(r"^\S+: (?:fatal )?error: (.+)$", re.MULTILINE)


def expectations(text):
    """(line, text) of each error that is to come."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = EXPECTED.match(line)
        if match:
            found.append((number + 1, match.group(1)))
    return found


def complaints(expected, output, name):
    """What differs between the errors of `output` and those expected."""
    errors = ERROR.findall(output)
    texts = collections.Counter(text for _, text in expected)
    found = []
    for text, times in texts.items():
        came = sum(text in error for error in errors)
        if came != times:
            found.append(f"{came} errors, not {times}, say: {text}")
    found += [f"no error is expected that says: {error}" for error in errors
              if not any(text in error for text in texts)]
    found += [f"no error names {name}:{line}, which is to say: {text}"
              for line, text in expected if f"{name}:{line}:" not in output]
    return found


def main():
    path, command = sys.argv[1], sys.argv[2:]
    with open(path, encoding="utf-8") as file:
        expected = expectations(file.read())
    # Which stops after twenty.
    more = ["-ferror-limit=0"] if "clang" in os.path.basename(command[0]) else []
    result = subprocess.run(
        command + more + ["-fsyntax-only", path], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, encoding="utf-8", check=False,
        env=dict(os.environ, LC_ALL="C"))
    found = complaints(expected, result.stdout, os.path.basename(path))
    if not expected:
        found.append(f"{path} expects no errors")
    if found:
        print(result.stdout)
        print("\n".join(found))
        return 1
    print(f"{len(expected)} errors, as expected")
    return 0


if __name__ == "__main__":
    sys.exit(main())
