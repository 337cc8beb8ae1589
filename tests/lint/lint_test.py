"""Each lint finds a planted violation and lets the lawful twin pass."""

import pathlib
import tempfile
import unittest

import codes
import format as format_lint
import layering
import links
import tree
import words


class LayeringTest(unittest.TestCase):

    def errors(self, path, header):
        return layering.check_file(path, f'#include "{header}"\n')

    def test_refuses_an_include_upwards(self):
        self.assertTrue(self.errors("common/x.cc", "head/state/node_table.h"))
        self.assertTrue(self.errors("worker/x.cc", "head/state/deadlines.h"))
        self.assertTrue(self.errors("rpc/x.h", "client/cluster.h"))
        self.assertTrue(self.errors("common/x.h", "tests/mini_cluster.h"))

    def test_allows_an_include_downwards(self):
        self.assertFalse(self.errors("head/x.cc", "common/clock.h"))
        self.assertFalse(self.errors("head/x.cc", "head/state/node_table.h"))
        self.assertFalse(self.errors("trainer/x.cc", "client/cluster.h"))
        self.assertFalse(self.errors("tests/sim/x.cc", "head/state/node_table.h"))

    def test_lets_the_head_show_what_the_client_shows(self):
        self.assertFalse(self.errors("head/http/http_service.cc", "client/json.h"))
        self.assertTrue(self.errors("client/json.h", "head/store/records.h"))

    def test_refuses_a_ring_of_folders(self):
        files = {"head/a.h": '#include "head/state/b.h"\n',
                 "head/state/b.h": '#include "head/store/c.h"\n',
                 "head/store/c.h": ""}
        self.assertFalse(layering.ring_errors(files))
        files["head/store/c.h"] = '#include "head/d.h"\n'
        files["head/d.h"] = ""
        errors = layering.ring_errors(files)
        self.assertEqual(len(errors), 3)
        self.assertIn("head -> head/state -> head/store -> head", errors[0])
        del files["head/store/c.h"]
        files["head/store/c_test.cc"] = '#include "head/d.h"\n'
        self.assertFalse(layering.ring_errors(files))

    def test_keeps_the_wire_out_of_the_ground_floor(self):
        self.assertTrue(self.errors("shm/x.h", "cohort/v1/run.pb.h"))
        self.assertTrue(self.errors("worker/x.cc", "cohort/v1/storage.pb.h"))
        self.assertFalse(self.errors("head/x.cc", "cohort/v1/storage.pb.h"))

    def test_fences_third_parties(self):
        for path, header in [("head/x.cc", "grpcpp/grpcpp.h"),
                             ("head/store/commit.cc", "rocksdb/db.h"),
                             ("trainer/reducer.cc", "torch/torch.h"),
                             ("trainer/reducer.cc", "gloo/allreduce.h"),
                             ("worker/attempt.cc", "cuda_runtime.h"),
                             ("trainer/session.cc", "nccl.h"),
                             ("worker/nvml_devices.cc", "nvml.h"),
                             ("common/x.cc", "google/protobuf/message.h")]:
            self.assertTrue(self.errors(path, header), (path, header))

    def test_allows_third_parties_within_their_fence(self):
        for path, header in [("rpc/server.cc", "grpcpp/grpcpp.h"),
                             ("head/store/rocksdb_store.cc", "rocksdb/db.h"),
                             ("trainer/torch/ddp.cc", "torch/torch.h"),
                             ("trainer/comm/gloo_comm.cc", "gloo/context.h"),
                             ("head/store/commit_test.cc", "rocksdb/db.h"),
                             ("bench/transitions.cc", "grpcpp/grpcpp.h")]:
            self.assertFalse(self.errors(path, header), (path, header))

    def test_a_cycle_cannot_be_written_down(self):
        self.assertFalse(layering.table_errors(layering.ALLOWED))
        self.assertTrue(layering.table_errors(
            {"common": {"rpc"}, "rpc": {"common"}}))
        self.assertTrue(layering.table_errors({"common": {"common"}}))


class WordsTest(unittest.TestCase):

    def rules(self, path, text):
        return [error.split(": ")[1] for error in
                words.check_file(path, "#pragma once\n" + text)]

    def test_finds_each_word(self):
        for rule, path, line in [
                ("mutex", "head/x.cc", "absl::Mutex mutex;"),
                ("mutex", "rpc/x.h", '#include "absl/synchronization/mutex.h"'),
                ("mutex", "rpc/x.cc", "std::lock_guard lock(mutex_);"),
                ("string-view", "head/x.h", "void F(std::string_view s);"),
                ("sleep", "head/x_test.cc", "absl::SleepFor(second);"),
                ("sleep", "worker/x.cc", "usleep(10);"),
                ("clock", "head/x.cc", "auto now = absl::Now();"),
                ("clock", "head/x.cc", "std::random_device device;"),
                ("throw", "head/x.cc", "throw Error();"),
                ("friend-test", "head/x.h", "FRIEND_TEST(A, B);"),
                ("todo", "head/x.cc", "// TODO: later"),
                ("todo", "cmake/x.cmake", "# FIXME"),
                ("tmp", "head/x_test.cc", 'Open("/tmp/x");'),
                ("guard", "head/x.h", "#ifndef HEAD_X_H_")]:
            self.assertIn(rule, self.rules(path, line), line)

    def test_lets_the_lawful_places_pass(self):
        for path, text in [
                ("common/mutex.h", "std::mutex mutex_;"),
                ("common/real_clock.cc", "return absl::Now();"),
                ("head/main.cc", "Run(absl::Now());"),
                ("head/x.cc", "std::string_view inside_a_source;"),
                ("head/x.cc", "// never absl::Now()"),
                ("head/x.cc", 'Log("absl::Mutex is not for us");'),
                ("bench/x.cc", "steady_clock::now();"),
                ("worker/x.cc",
                 "usleep(1);  // NOLINT(cohort-sleep): the kernel's bug")]:
            self.assertEqual([], self.rules(path, text), text)

    def test_an_excuse_needs_its_reason(self):
        self.assertTrue(self.rules("worker/x.cc",
                                   "usleep(1);  // NOLINT(cohort-sleep)"))

    def test_a_literal_does_not_hide_the_line_after_it(self):
        self.assertTrue(self.rules("head/x.cc",
                                   "char c = '\"'; absl::Now(); // \"\n"))
        self.assertTrue(self.rules("head/x.cc",
                                   'auto r = R"(a " b)"; absl::Now();'))

    def test_wants_pragma_once(self):
        self.assertTrue(words.check_file("head/x.h", "int x;\n"))

    def test_wants_files_that_one_can_read(self):
        self.assertFalse(words.check_file("common/x.cc", "\n" * 800))
        self.assertTrue(words.check_file("common/x.cc", "\n" * 801))

    def test_finds_a_source_that_nothing_builds(self):
        lists = {"head/CMakeLists.txt": "cohort_library(NAME head SRCS a.cc)"}
        self.assertFalse(words.dead_sources(["head/a.cc"], lists))
        self.assertTrue(words.dead_sources(["head/b.cc"], lists))


class LinksTest(unittest.TestCase):

    def test_finds_a_link_that_leads_nowhere(self):
        existing = {"docs/a.md", "head", "head/x.h"}
        for target, broken in [("a.md", False), ("../head/x.h#top", False),
                               ("../head/", False), ("#here", False),
                               ("https://example.org/x", False),
                               ("b.md", True), ("head/x.h", True)]:
            page = {"docs/a.md": f"see [x]({target})\n"}
            self.assertEqual(broken, bool(links.check(page, existing)), target)
        self.assertFalse(links.check({"docs/a.md": "`[x](b.md)`"}, existing))


class CodesTest(unittest.TestCase):

    def test_finds_a_code_without_a_row(self):
        code, other = "ZZ-1", "ZZ-2"
        files = {codes.GLOSSARY: f"| {code} | it holds | `head/x.h` |\n",
                 "head/x.h": f"// {code}: it holds.\n"}
        self.assertFalse(codes.check(files))
        files["head/x.cc"] = f"// {other}\n"
        self.assertEqual(1, len(codes.check(files)))
        files["head/x.h"] = ""
        self.assertEqual(2, len(codes.check(files)))


class FormatTest(unittest.TestCase):

    def test_finds_a_file_out_of_shape(self):
        program = format_lint.find_clang_format()
        if program is None:
            self.skipTest("no clang-format 14")
        with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
            folder = pathlib.Path(directory)
            style = (tree.root() / ".clang-format").read_text()
            (folder / ".clang-format").write_text(style)
            good = folder / "good.cc"
            good.write_text("int main() { return 0; }\n")
            bad = folder / "bad.cc"
            bad.write_text("int  main( ) {return 0;}\n")
            self.assertFalse(format_lint.unformatted(program, [str(good)]))
            self.assertTrue(format_lint.unformatted(program, [str(bad)]))
            format_lint.unformatted(program, [str(bad)], fix=True)
            self.assertFalse(format_lint.unformatted(program, [str(bad)]))


if __name__ == "__main__":
    unittest.main()
