"""Every invariant code (XX-1) has its row in docs/design/glossary.md.

  codes.py     checks the repository
"""

import re
import sys

import tree

GLOSSARY = "docs/design/glossary.md"
CODE = re.compile(r"\b[A-Z]{2}-[1-9]\d?\b")
ROW = re.compile(r"^\| ([A-Z]{2}-\d+) \| .+ \| `([^`]+)` \|$", re.MULTILINE)


def check(files):
    """Errors of `files` {path: text}, of which one is the glossary."""
    rows = ROW.findall(files[GLOSSARY])
    known = {code for code, _ in rows}
    errors = [f"{GLOSSARY}: {code}: {path} does not mention it"
              for code, path in rows
              if code not in CODE.findall(files.get(path, ""))]
    for path, text in files.items():
        errors += [f"{path}: {code} is not in {GLOSSARY}"
                   for code in sorted(set(CODE.findall(text)) - known)]
    return errors


def main():
    files = tree.read((".h", ".cc", ".cu", ".proto", ".md", "_test.py"))
    files = {path: text for path, text in files.items()
             if not path.startswith("tests/lint/")}
    return tree.report("codes", len(files), "files", check(files))


if __name__ == "__main__":
    sys.exit(main())
