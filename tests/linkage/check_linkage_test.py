"""check_linkage finds what it is there for, in output as ldd and nm print it."""

import unittest

from check_linkage import (holds_protobuf, loaded_objects, problems,
                           search_problems)

LDD = """\tlinux-vdso.so.1 (0x00007ffd)
\tlibprotobuf.so.32 => /lib/x86_64-linux-gnu/libprotobuf.so.32 (0x00007f)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f)
"""
NM = ("0000 T google::protobuf::internal::AssignDescriptors(x const*)\n"
      "0000 T main\n")


class CheckLinkageTest(unittest.TestCase):

    def test_reads_object_names(self):
        self.assertEqual(loaded_objects(LDD)[1:3],
                         ["libprotobuf.so.32", "libc.so.6"])
        self.assertEqual(loaded_objects("\tnot a dynamic executable\n"), [])

    def test_sees_a_protobuf_inside(self):
        self.assertTrue(holds_protobuf(NM))
        self.assertFalse(holds_protobuf("0000 T main\n"))

    def test_refuses_two_copies(self):
        for kind in ("static", "shared", "bare"):
            self.assertTrue(problems(kind, loaded_objects(LDD), True))

    def test_refuses_a_shared_object_in_a_static_program(self):
        self.assertTrue(problems("static", ["libstdc++.so.6"], True))
        self.assertTrue(problems("mixed", ["libgrpc++.so.1.51"], True))
        self.assertTrue(problems("bare", ["libgrpc++.so.1.51"], False))

    def test_refuses_gloo_behind_that_of_a_wheels_torch(self):
        self.assertTrue(problems("shared", ["libtorch_cpu.so", "libgloo.so.0"],
                                 False))
        for fine in (["libgloo.so.0", "libtorch_cpu.so"],
                     ["libtorch_cpu.so.1.13", "libgloo.so.0"],
                     ["libtorch_cpu.so"]):
            self.assertFalse(problems("shared", fine, False))

    def test_refuses_the_directory_that_a_program_is_started_in(self):
        line = " 0x0f (%s)              Library rpath: [%s]\n"
        for path in ("::::", "", "/lib:", "lib", "/lib:.:/usr/lib"):
            for tag in ("RPATH", "RUNPATH"):
                self.assertTrue(search_problems(line % (tag, path)), path)
        for path in ("/lib", "$ORIGIN/../lib", "/opt/lib:$ORIGIN/../lib"):
            self.assertFalse(search_problems(line % ("RUNPATH", path)))
        self.assertFalse(search_problems(" 0x01 (NEEDED)  [libc.so.6]\n"))

    def test_accepts_what_is_meant(self):
        self.assertFalse(problems("static", ["libc.so.6", "libm.so.6"], True))
        self.assertFalse(problems("mixed", ["libstdc++.so.6"], True))
        self.assertFalse(problems("mixed", ["libgloo.so.0"], True))
        self.assertTrue(problems("static", ["libgloo.so.0"], True))
        self.assertFalse(problems("shared", loaded_objects(LDD), False))
        self.assertFalse(problems("bare", ["libc.so.6"], False))


if __name__ == "__main__":
    unittest.main()
