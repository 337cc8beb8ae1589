"""Programs that tests talk to: one answer for each line."""

import subprocess

import cluster


class Driver:
    """A program that owns actors or runs tasks, told what to do by lines."""

    def __init__(self, test, program, environment, cwd=None):
        self.process = subprocess.Popen(
            [program], env=environment, cwd=cwd, text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE)
        test.addCleanup(self.kill)
        test.assertEqual(self.process.stdout.readline(), "ready\n")
        self.test = test

    def say(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def hear(self):
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def value(self, *words):
        answer = self.ask(*words)
        self.test.assertRegex(answer, "^ok", words)
        return answer[3:]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def quit(self):
        self.say("quit")
        return self.process.wait(timeout=cluster.DEADLINE)
