"""Who may include whom, and which third-party header lies behind which fence.

  layering.py     checks the repository; see docs/architecture.md for the why

The order of ALLOWED is the order of the layers: an entry may name only folders
above it, so a cycle cannot be written down.
"""

import fnmatch
import os
import re
import sys

import tree

ALLOWED = {
    "common": set(),
    "proto": set(),
    "shm": {"common"},
    "rpc": {"common", "proto"},
    "client": {"common", "proto", "shm", "rpc"},
    "actor": {"common", "proto", "shm", "rpc", "client"},
    # It serves the JSON that the client writes.
    "head": {"common", "proto", "rpc", "client"},
    "worker": {"common", "proto", "shm", "rpc"},
    "trainer": {"common", "proto", "shm", "rpc", "client", "actor"},
}
# Programs on top of everything.
UNFENCED = ("tests/", "bench/", "examples/")

# Header prefix -> the files that may include it.
FENCES = {
    "grpcpp/": ["rpc/*"],
    "grpc/": ["rpc/*"],
    "rocksdb/": ["head/store/rocksdb_*"],
    "gloo/": ["trainer/comm/*"],
    "torch/": ["trainer/torch/*"],
    "ATen/": ["trainer/torch/*"],
    "c10/": ["trainer/torch/*"],
    "nccl.h": ["trainer/comm/*"],
    "cuda": ["trainer/cuda/*", "trainer/comm/*"],
    "nvml.h": [],  # worker/nvml_devices has its own prototypes and dlopen.
    "cohort/v1/storage.pb.h": ["head/*"],
    # The tiny parent of the ranks and what ranks map stay free of protobuf.
    "google/protobuf/": ["rpc/*", "head/*", "worker/*", "client/*",
                         "actor/*", "trainer/*"],
    "prometheus/": ["head/metrics/metrics_page.*"],
    "boost/": ["head/http/http_server.*"],
    "CLI/": ["*/main.cc", "*options.cc", "*options.h", "client/cli/*",
             "head/archive/offline.cc"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)


def table_errors(allowed):
    """A layer may name only layers above it in the table."""
    errors = []
    above = set()
    for layer, may_see in allowed.items():
        for below in sorted(may_see - above):
            errors.append(f"layering.py: {layer} may not be allowed {below}, "
                          "which stands below it or nowhere")
        above.add(layer)
    return errors


def layer_of(path):
    """Of a header as it is included, or of one of our files."""
    if path.startswith("cohort/v1/"):
        return "proto"
    return path.split("/")[0]


def is_test_code(path):
    return ("/testing/" in path
            or path.endswith(("_test.cc", "_test_main.cc", "_fuzz.cc")))


def is_test(path):
    return path.startswith(UNFENCED) or is_test_code(path)


def check_file(path, text):
    errors = []
    folder = layer_of(path)
    for header in INCLUDE.findall(text):
        layer = layer_of(header)
        if (folder in ALLOWED and layer in ALLOWED and layer != folder
                and layer not in ALLOWED[folder]):
            errors.append(f"{path}: {folder} may not include {header}")
        if folder in ALLOWED and header.startswith(UNFENCED):
            errors.append(f"{path}: {folder} may not include {header}")
        if is_test(path):
            continue
        for prefix, globs in FENCES.items():
            if header.startswith(prefix) and not any(
                    fnmatch.fnmatch(path, glob) for glob in globs):
                where = ", ".join(globs) if globs else "nowhere"
                errors.append(f"{path}: {header} may be included in {where}")
    return errors


def cycle_in(edges):
    """Folders of a ring of includes, first and last alike; [] when there is none."""
    done = set()

    def walk(folder, way):
        if folder in way:
            return way[way.index(folder):] + [folder]
        if folder in done:
            return []
        for below in sorted(edges.get(folder, ())):
            ring = walk(below, way + [folder])
            if ring:
                return ring
        done.add(folder)
        return []

    for folder in sorted(edges):
        ring = walk(folder, [])
        if ring:
            return ring
    return []


def ring_errors(files):
    """No two folders include each other, subfolders too, by whatever way."""
    edges, by = {}, {}
    for path, text in files.items():
        if path.startswith("tests/") or is_test_code(path):
            continue
        folder = os.path.dirname(path)
        for header in INCLUDE.findall(text):
            below = os.path.dirname(header)
            if header in files and below != folder:
                edges.setdefault(folder, set()).add(below)
                by.setdefault((folder, below), f"{path} includes {header}")
    ring = cycle_in(edges)
    return [f"{by[pair]}: in a ring of folders, {' -> '.join(ring)}"
            for pair in zip(ring, ring[1:])]


def check(files):
    errors = table_errors(ALLOWED) + ring_errors(files)
    for path, text in files.items():
        errors += check_file(path, text)
    return errors


def main():
    files = tree.read((".h", ".cc", ".cu"))
    return tree.report("layering", len(files), "files", check(files))


if __name__ == "__main__":
    sys.exit(main())
