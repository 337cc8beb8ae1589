"""Words that may not stand in the source, each with its reason.

  words.py     checks the repository

A line is excused by `NOLINT(cohort-<rule>): why` on it or on the line above.
"""

import fnmatch
import re
import sys

import tree

CODE = ("*.h", "*.cc", "*.cu")
TESTS = ("tests/*", "bench/*", "examples/*", "*/testing/*", "*_test.cc")


class Rule:
    """`pattern` may not stand in files that match `where` and not `but`."""

    def __init__(self, name, pattern, why, where=CODE, but=(), raw=False):
        self.name = name
        self.pattern = re.compile(pattern)
        self.why = why
        self.where = where
        self.but = but
        self.raw = raw  # Comments and strings count too.

    def covers(self, path):
        return (any(fnmatch.fnmatch(path, glob) for glob in self.where)
                and not any(fnmatch.fnmatch(path, glob) for glob in self.but))


RULES = [
    Rule("mutex",
         r"absl/synchronization/|absl::(Mutex|MutexLock|CondVar|Notification|"
         r"BlockingCounter|Barrier)\b|std::(mutex|recursive_mutex|"
         r"shared_mutex|condition_variable|lock_guard|unique_lock)\b",
         "use common/mutex.h: ThreadSanitizer and the thread-safety analysis "
         "understand it",
         but=("common/mutex.h", "rpc/grpc_bytes.cc")),
    Rule("string-view", r"\bstd::string_view\b",
         "absl::string_view is another type on Debian and does not convert",
         where=("*.h",)),
    Rule("sleep",
         r"\bsleep_for\b|\bsleep_until\b|\bSleepFor\b|\b(u|nano)?sleep\s*\(|"
         r"\bclock_nanosleep\s*\(",
         "wait for the event, or give the test a manual clock",
         but=("common/*", "*/main.cc", "bench/*")),
    Rule("clock",
         r"\babsl::Now\s*\(|\bsystem_clock\b|\bsteady_clock\b|"
         r"\bhigh_resolution_clock\b|\bgettimeofday\s*\(|"
         r"\bclock_gettime\s*\(|\brandom_device\b",
         "take a Clock& or a Random&",
         # What waits in the kernel, in gRPC or in Gloo waits by the machine's
         # clock; the keeper is one small program.
         but=("common/*", "shm/*", "rpc/grpc_*", "trainer/comm/*",
              "worker/keeper/*", "*/main.cc") + TESTS),
    Rule("throw", r"\bthrow\b", "return an absl::Status",
         # Gloo's interfaces report by exception.
         but=("trainer/comm/gloo_*",)),
    Rule("friend-test", r"\bFRIEND_TEST\b",
         "where a test must reach in, a seam is missing"),
    Rule("todo", r"\b(TODO|FIXME|XXX|HACK)\b",
         "do it, or open an issue",
         where=CODE + ("*.cmake", "*CMakeLists.txt", "*.proto", "tools/*.sh",
                       "*.py"),
         but=("tests/lint/*",), raw=True),
    Rule("tmp", r'"/tmp/', "/tmp may be a tmpfs: use common/testing/temp_dir",
         where=("*_test.cc", "tests/*.cc", "tests/*.h"), raw=True),
    Rule("guard", r"^#ifndef \w+_H_?$", "use #pragma once", where=("*.h",)),
]

LINES_MAX = 800

COMMENT_OR_LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)


def code_only(text):
    """The text without comments and literals, line for line."""
    return COMMENT_OR_LITERAL.sub(
        lambda match: ('""' if match.group()[0] in "\"R" else "")
        + "\n" * match.group().count("\n"), keep_includes(text))


def keep_includes(text):
    """An include's quotes are not a literal."""
    return re.sub(r'^(\s*#\s*include\s*)"([^"]+)"', r"\1<\2>", text,
                  flags=re.MULTILINE)


def check_file(path, text):
    errors = []
    raw = text.splitlines()
    code = code_only(text).splitlines()
    for rule in RULES:
        if not rule.covers(path):
            continue
        lines = raw if rule.raw else code
        for number, line in enumerate(lines):
            if not rule.pattern.search(line):
                continue
            excuse = f"NOLINT(cohort-{rule.name}): "
            if any(excuse in near for near in raw[max(0, number - 1):
                                                  number + 1]):
                continue
            errors.append(f"{path}:{number + 1}: {rule.name}: "
                          f"{raw[number].strip()}\n    {rule.why}")
    if len(raw) > LINES_MAX:
        errors.append(f"{path}: length: {len(raw)} lines, at most {LINES_MAX}")
    if path.endswith(".h") and "#pragma once" not in text:
        errors.append(f"{path}: guard: no #pragma once")
    return errors


def names(text, word):
    return re.search(rf"\b{re.escape(word)}\b", text)


def dead_sources(sources, cmake_files):
    """Sources that no CMakeLists.txt of their folder or above it names.

    Where a loop or a function makes names, the name without its ending will do.
    """
    errors = []
    for path in sources:
        name = path.rsplit("/", 1)[-1]
        folders = path.split("/")[:-1]
        stem = re.sub(r"\.(cc|cu)$", "", name)
        lists = [cmake_files.get("/".join(folders[:depth] +
                                          ["CMakeLists.txt"]), "")
                 for depth in range(len(folders), 0, -1)]
        noun = re.sub(r"_test$", "", stem)
        if not any(names(text, name) or ("${" in text and
                                         (names(text, stem)
                                          or names(text, noun)))
                   for text in lists):
            errors.append(f"{path}: no CMakeLists.txt builds it")
    return errors


def check(files):
    errors = []
    for path, text in files.items():
        errors += check_file(path, text)
    errors += dead_sources(
        [path for path in files if path.endswith((".cc", ".cu"))
         and not path.startswith("tests/install/project/")],
        {path: text for path, text in files.items()
         if path.endswith("CMakeLists.txt")})
    return errors


def main():
    files = tree.read((".h", ".cc", ".cu", ".cmake", "CMakeLists.txt",
                       ".proto", ".sh", ".py"))
    return tree.report("words", len(files), "files", check(files))


if __name__ == "__main__":
    sys.exit(main())
