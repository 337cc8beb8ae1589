"""Every relative link in a Markdown file leads to a file of the repository.

  links.py     checks the repository
"""

import posixpath
import re
import sys

import tree

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def check(pages, existing):
    """Errors of `pages` {path: text}; `existing` holds files and folders."""
    errors = []
    for path, text in pages.items():
        for target in LINK.findall(CODE.sub("", text)):
            name = target.split("#")[0]
            if re.match(r"\w+:", target) or not name:
                continue
            found = posixpath.normpath(
                posixpath.join(posixpath.dirname(path), name))
            if found not in existing:
                errors.append(f"{path}: {target} leads nowhere")
    return errors


def main():
    paths = tree.paths()
    existing = set(paths)
    for path in paths:
        while path:
            path = posixpath.dirname(path)
            existing.add(path or ".")
    pages = tree.read((".md",))
    return tree.report("links", len(pages), "pages", check(pages, existing))


if __name__ == "__main__":
    sys.exit(main())
