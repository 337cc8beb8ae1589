"""Reads ldd, nm and readelf of each program: one protobuf, one libstdc++.

  check_linkage.py [--static P | --mixed P | --shared P | --bare P]...

static: gRPC, protobuf, Abseil, RocksDB and libstdc++ inside, glibc outside.
mixed:  as static, but libstdc++ is the system's, and with it Gloo: only one of it.
shared: protobuf from the shared object alone, or not at all; and Gloo before a
        LibTorch that exports one of its own (cmake/CohortTorchWheel.cmake).
bare:   none of them, inside or outside.

None looks for shared objects in the directory that it is started in.
"""

import argparse
import re
import subprocess
import sys

OURS = ("libgrpc", "libgpr", "libprotobuf", "libabsl", "librocksdb",
        "libstdc++", "libgcc_s", "libssl", "libcrypto", "libtorch", "libc10",
        "libgloo")
# Defined in every copy of the runtime, needed by every generated message.
PROTOBUF_SYMBOL = "google::protobuf::internal::AssignDescriptors("


def loaded_objects(ldd_output):
    """The names of the shared objects that a program loads."""
    return [line.split()[0].rsplit("/", 1)[-1]
            for line in ldd_output.splitlines()
            if line.strip() and "statically linked" not in line
            and "not a dynamic" not in line]


def holds_protobuf(nm_output):
    """Whether the program itself defines protobuf's runtime."""
    for line in nm_output.splitlines():
        fields = line.split(maxsplit=2)
        if (len(fields) == 3 and fields[1] in "TtWwVv"
                and fields[2].startswith(PROTOBUF_SYMBOL)):
            return True
    return False


def problems(kind, objects, has_own_protobuf):
    """What is wrong with a program of this kind, as a list of sentences."""
    found = []
    if kind != "shared":
        system = ("libstdc++", "libgcc_s", "libgloo") if kind == "mixed" else ()
        found += [f"a {kind} program loads {name}" for name in objects
                  if name.startswith(OURS) and not name.startswith(system)]
    if kind == "bare" and has_own_protobuf:
        found.append("a bare program holds protobuf")
    if has_own_protobuf and any(name.startswith("libprotobuf")
                                for name in objects):
        found.append("two copies of protobuf: one inside, one loaded")
    elif kind == "shared" and has_own_protobuf:
        found.append("a shared program holds its own protobuf")
    wheel = "libtorch_cpu.so"  # Debian's, which has a version behind, shares Gloo.
    if wheel in objects and any(
            name.startswith("libgloo")
            for name in objects[objects.index(wheel):]):
        found.append("Gloo is loaded behind the one that LibTorch exports")
    return found


def search_problems(readelf_output):
    """What is wrong with where a program looks, from readelf --dynamic."""
    paths = re.findall(r"\((RPATH|RUNPATH)\).*\[(.*)\]", readelf_output)
    return [f"{tag} has an entry that depends on where it is started: {path}"
            for tag, path in paths
            if not all(entry.startswith(("/", "$ORIGIN"))
                       for entry in path.split(":"))]


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stdout + (result.stderr if result.returncode else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for kind in ("static", "mixed", "shared", "bare"):
        parser.add_argument(f"--{kind}", action="append", default=[])
    arguments = vars(parser.parse_args())
    failures = 0
    for kind, programs in arguments.items():
        for program in programs:
            objects = loaded_objects(run(["ldd", program]))
            own = holds_protobuf(run(["nm", "-C", "--defined-only", program]))
            print(f"{program}: {kind}, {len(objects)} shared objects, "
                  f"{'own' if own else 'no own'} protobuf")
            searched = search_problems(run(["readelf", "--dynamic", program]))
            for problem in problems(kind, objects, own) + searched:
                print(f"  FAILED: {problem}")
                failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
