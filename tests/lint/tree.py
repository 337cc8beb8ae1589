"""The files of the repository, as {path from the root: text}."""

import pathlib
import subprocess

SKIPPED = {"build", ".git", "__pycache__"}


def root():
    return pathlib.Path(__file__).resolve().parents[2]


def paths():
    """What git tracks and what it would (an unpacked archive: what is there)."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=root(),
            capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        listed = [str(path.relative_to(root())) for path in root().rglob("*")
                  if not SKIPPED & set(path.relative_to(root()).parts)]
    return sorted(path for path in listed if (root() / path).is_file())


def read(suffixes):
    """The text of the files that end in one of `suffixes`."""
    return {path: (root() / path).read_text(errors="replace")
            for path in paths() if path.endswith(suffixes)}


def report(name, count, noun, errors):
    """Prints what a lint found; gives its exit status."""
    for error in errors:
        print(error)
    print(f"{name}: {count} {noun}, {len(errors)} errors")
    return 1 if errors else 0
