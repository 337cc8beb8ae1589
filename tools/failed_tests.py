#!/usr/bin/env python3
"""Names the failed tests of a ctest run, each with the end of what it printed.

    failed_tests.py [--names] JUNIT_FILE    (--names: nothing but the names)
"""

import sys
import xml.etree.ElementTree

LINES_SHOWN = 25


def main() -> None:
    names_only = sys.argv[1] == "--names"
    root = xml.etree.ElementTree.parse(sys.argv[-1]).getroot()
    for case in root.iter("testcase"):
        if case.get("status") != "fail":
            continue
        if names_only:
            print(case.get("name"))
            continue
        print(f"failed: {case.get('name')}")
        lines = (case.findtext("system-out") or "").rstrip().splitlines()
        for line in lines[-LINES_SHOWN:]:
            print(f"    {line}")


if __name__ == "__main__":
    main()
