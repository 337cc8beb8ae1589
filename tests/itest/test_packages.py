"""What `cohort submit` sends along, what it leaves here and what it refuses."""

import os

import cluster


class Packages(cluster.ClusterTest):

    def submit(self, c, *args, cwd="tree"):
        """Runs it there, so that names are as people write them."""
        return c.run("submit", *args, cwd=self.sandbox.dir / cwd)

    def tree(self):
        self.file("tree/run.sh", "#!/bin/sh\nfind . -type f -o -type l | sort\n",
                  0o755)
        self.file("tree/train.py", "print('trained')\n")
        return self.sandbox.dir / "tree"

    def assert_nothing_sent(self, c):
        self.assertEqual(c.json("jobs", "list"), [])
        self.assertEqual(os.listdir(self.sandbox.dir / "head/packages"), [])

    def test_links_stay_links_and_hard_links_become_copies(self):
        c = self.cluster()
        tree = self.tree()
        self.file("tree/v2/model", "two\n")
        (tree / "current").symlink_to("v2")
        os.link(tree / "v2/model", tree / "copy")
        done = self.submit(c, "-f", "--working-dir", ".", "--", "sh", "-c",
                           "cat current/model copy; readlink current;"
                           "stat -c %h copy")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[1:],
                         ["two", "two", "v2", "1"])

    def test_ignore_files_and_flags_choose_what_is_sent(self):
        c = self.cluster()
        self.tree()
        self.file("tree/.gitignore", "data/\n*.log\n")
        self.file("tree/data/1", "")
        self.file("tree/a.log", "")
        self.file("tree/.git/config", "")
        self.file("tree/sub/.cohortignore", "!a.log\n")
        self.file("tree/sub/a.log", "")
        self.file("far/extra/x", "")
        done = self.submit(c, "-f", "--working-dir", ".", "--file",
                           "../far/extra", "--exclude", "train.*", "--",
                           "./run.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[1:],
                         ["./.gitignore", "./extra/x", "./run.sh",
                          "./sub/.cohortignore", "./sub/a.log"])
        self.assertIn("cohort: 4 entries left out of the package: .git, a.log, data, "
                      "...\n", done.stderr)
        done = self.submit(c, "-f", "--working-dir", ".", "--no-ignore", "--",
                           "./run.sh")
        self.assertIn("./.git/config", done.stdout)
        self.assertIn("./data/1", done.stdout)
        self.assertNotIn("left out", done.stderr)

    def test_a_command_that_is_only_here_is_refused_before_anything_is_sent(self):
        c = self.cluster()
        self.tree()
        self.assert_fails(self.submit(c, "--", "python3", "train.py"), 2,
                          "train.py is here", "--file train.py",
                          "--working-dir .")
        self.assert_fails(self.submit(c, "--", "python3", "trian.py"), 2,
                          "trian.py is neither here nor in what is sent")
        self.assert_fails(self.submit(c, "--", "./run.sh"), 2,
                          "--file run.sh", "--working-dir .")
        self.assert_fails(
            self.submit(c, "--file", "tree/run.sh", "--", "tree/run.sh",
                        cwd="."), 2, "write ./run.sh")
        self.file("tree/.gitignore", "*.py\n")
        self.assert_fails(
            self.submit(c, "--working-dir", ".", "--", "python3", "train.py"),
            2, "train.py is left out", ".gitignore line 1, *.py")
        self.assert_nothing_sent(c)
        done = self.submit(c, "-f", "--working-dir", ".", "--exclude",
                           "!train.py", "--", "python3", "train.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        path = self.sandbox.dir / "tree/train.py"
        done = self.submit(c, "-f", "--", "python3", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{path} is not sent: every node must have it",
                      done.stderr)

    def test_what_cannot_be_packed_is_named_and_nothing_is_sent(self):
        c = self.cluster()
        tree = self.tree()
        odd = tree / "odd"
        for make, why in (
                (lambda: odd.symlink_to("/etc/passwd"), "/etc/passwd, outside"),
                (lambda: odd.symlink_to("../far"), "../far, outside"),
                (lambda: odd.symlink_to("odd"), "in a circle"),
                (lambda: os.mkfifo(odd), "a pipe")):
            make()
            done = self.submit(c, "--working-dir", ".", "--", "./run.sh")
            self.assert_fails(done, 2, "./odd", why, "--exclude")
            odd.unlink()
        self.assert_nothing_sent(c)

    def test_a_large_package_is_told_with_its_largest_entries(self):
        c = self.cluster()
        self.tree()
        self.file("tree/data/part", "")
        os.truncate(self.sandbox.dir / "tree/data/part", 101_000_000)
        # The job that it waits for is missing, which is found before it is
        # sent.
        done = self.submit(c, "--working-dir", ".", "--after", "none", "--",
                           "./run.sh")
        self.assert_fails(done, 125, "cohort: the package has 96.3MiB, most in "
                          "data 96.3MiB (leave out", "--exclude")
        self.assert_nothing_sent(c)


if __name__ == "__main__":
    cluster.main()
