// A driver of tasks that does what it is told on its stdin, one command a line,
// and answers each with one line: "ok VALUE", or "CODE REASON MESSAGE".
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "actor/actor.h"
#include "tests/itest/told_program.h"

namespace tasks {

int Add(int a, int b) { return a + b; }
int Pid() { return getpid(); }
int Throw(const std::string& what) {
  throw std::runtime_error(what);  // NOLINT(cohort-throw): a user's
}
// Throws as long as the file has fewer lines than `times`.
int ThrowTimes(const std::string& file, int times) {
  std::ofstream(file, std::ios::app) << getpid() << "\n";
  std::ifstream in(file);
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  if (lines < times) {
    throw std::runtime_error("again");  // NOLINT(cohort-throw): a user's
  }
  return lines;
}
// Ends its process as long as the file has fewer lines than `times`.
int ExitTimes(const std::string& file, int times) {
  std::ofstream(file, std::ios::app) << getpid() << "\n";
  std::ifstream in(file);
  int lines = 0;
  for (std::string line; std::getline(in, line);) ++lines;
  if (lines < times) _exit(7);
  return lines;
}
// Until somebody writes a line into that pipe.
int Wait(const std::string& pipe) {
  std::cout << "waits" << std::endl;
  std::ifstream in(pipe);
  std::string line;
  std::getline(in, line);
  return getpid();
}
// Until it is cancelled, which it writes to that file.
int WaitForCancel(const std::string& file) {
  std::ofstream(file) << getpid() << std::endl;
  while (!cohort::IsCancelled()) std::this_thread::yield();
  std::ofstream(file, std::ios::app) << "cancelled" << std::endl;
  return 0;
}
// Until its process is ended.
int Hang(const std::string& file) {
  std::ofstream(file, std::ios::app) << getpid() << std::endl;
  for (;;) pause();
}
absl::StatusOr<int> Fibonacci(int n) {
  if (n < 2) return n;
  const cohort::Future<int> first = cohort::Run<&Fibonacci>(n - 1);
  const cohort::Future<int> second = cohort::Run<&Fibonacci>(n - 2);
  const absl::StatusOr<int> a = first.Get();
  if (!a.ok()) return a;
  const absl::StatusOr<int> b = second.Get();
  if (!b.ok()) return b;
  return *a + *b;
}
std::string Echo(const std::string& text) { return text; }
// Each waits for the next, all with the same arguments.
absl::StatusOr<int> Chain(int depth, const std::string& text) {
  if (depth == 0) return static_cast<int>(text.size());
  return cohort::Run<&Chain>(depth - 1, text).Get();
}

// An actor whose methods run tasks.
class Asks {
 public:
  absl::StatusOr<int> Fibonacci(int n) {
    return cohort::Run<&tasks::Fibonacci>(n).Get();
  }
  int Pid() const { return getpid(); }
  // By a Runtime of its own.
  absl::StatusOr<int> OwnFibonacci(int n) {
    absl::StatusOr<cohort::Runtime> own = cohort::Runtime::Connect("own");
    if (!own.ok()) return own.status();
    return own->Run<&tasks::Fibonacci>(n).Get();
  }
  int WaitForCancel(const std::string& file) {
    return tasks::WaitForCancel(file);
  }
};

}  // namespace tasks

namespace {

using cohort::itest::Line;

class Program {
 public:
  explicit Program(cohort::Runtime& runtime) : runtime_(runtime) {}

  std::string Do(const std::string& line) {
    std::istringstream in(line);
    std::string command;
    in >> command;
    if (command == "cpus") {
      double cpus = 0;
      in >> cpus;
      options_.num_cpus = cpus;
      return "ok";
    }
    if (command == "retries") {
      in >> options_.max_retries >> options_.retry_exceptions;
      return "ok";
    }
    if (command == "add")
      return Line(runtime_.Run<&tasks::Add>(options_, 40, 2).Get());
    if (command == "pid")
      return Line(runtime_.Run<&tasks::Pid>(options_).Get());
    if (command == "throw") {
      return Line(
          runtime_.Run<&tasks::Throw>(options_, std::string("why")).Get());
    }
    if (command == "throw_times" || command == "exit_times") {
      std::string file;
      int times = 0;
      in >> file >> times;
      return command == "throw_times"
                 ? Line(runtime_.Run<&tasks::ThrowTimes>(options_, file, times)
                            .Get())
                 : Line(runtime_.Run<&tasks::ExitTimes>(options_, file, times)
                            .Get());
    }
    if (command == "fibonacci") {
      int n = 0;
      in >> n;
      return Line(runtime_.Run<&tasks::Fibonacci>(options_, n).Get());
    }
    if (command == "wait") {
      std::string pipe;
      in >> pipe;
      waiting_.push_back(runtime_.Run<&tasks::Wait>(options_, pipe));
      return "ok";
    }
    if (command == "wait_for_cancel" || command == "hang") {
      std::string file;
      in >> file;
      waiting_.push_back(
          command == "hang"
              ? runtime_.Run<&tasks::Hang>(options_, file)
              : runtime_.Run<&tasks::WaitForCancel>(options_, file));
      return "ok";
    }
    if (command == "cancel") {
      waiting_.back().Cancel();
      return "ok";
    }
    if (command == "force") {
      waiting_.back().Cancel(cohort::CancelMode::kForce);
      return "ok";
    }
    if (command == "actor") return DoActor(in);
    if (command == "get") {
      const absl::StatusOr<int> got = waiting_.front().Get();
      waiting_.erase(waiting_.begin());
      return Line(got);
    }
    if (command == "get_within") {
      return Line(waiting_.front().Get(absl::Milliseconds(20)));
    }
    if (command == "many") {
      int count = 0;
      in >> count;
      return Many(count);
    }
    if (command == "dont_wait") {
      cohort::TaskOptions options = options_;
      options.when_full = cohort::WhenFull::kDontWait;
      return Line(runtime_.Run<&tasks::Add>(options, 1, 1).Get());
    }
    if (command == "chain") {
      int depth = 0;
      in >> depth;
      const std::string text(1 << 20, 'x');
      return Line(runtime_.Run<&tasks::Chain>(options_, depth, text).Get());
    }
    if (command == "large") {
      const std::string text(3 << 20, 'x');
      const auto echoed = runtime_.Run<&tasks::Echo>(options_, text).Get();
      return echoed.ok() ? "ok " + std::to_string(echoed->size())
                         : Line(echoed.status());
    }
    return "unknown " + command;
  }

 private:
  // NAME create|detach|fibonacci N|own N|pid|wait_for_cancel FILE
  std::string DoActor(std::istringstream& in) {
    std::string name;
    std::string command;
    in >> name >> command;
    if (command == "create" || command == "detach") {
      cohort::ActorOptions options;
      options.max_restarts = 1;
      options.max_pending_calls = 1;
      if (command == "detach") options.lifetime = cohort::Lifetime::kDetached;
      actors_.insert_or_assign(name, runtime_.Create<tasks::Asks>(options));
      return "ok";
    }
    cohort::Handle<tasks::Asks>& actor = actors_.at(name);
    if (command == "pid") return Line(actor.Call<&tasks::Asks::Pid>().Get());
    if (command == "kill") return Line(runtime_.Kill(actor));
    if (command == "wait_for_cancel") {
      std::string file;
      in >> file;
      waiting_.push_back(actor.Call<&tasks::Asks::WaitForCancel>(file));
      return "ok";
    }
    int n = 0;
    in >> n;
    return command == "own"
               ? Line(actor.Call<&tasks::Asks::OwnFibonacci>(n).Get())
               : Line(actor.Call<&tasks::Asks::Fibonacci>(n).Get());
  }

  std::string Many(int count) {
    std::vector<cohort::Future<int>> futures;
    futures.reserve(count);
    for (int i = 0; i < count; ++i) {
      futures.push_back(runtime_.Run<&tasks::Add>(options_, i, 1));
    }
    int64_t sum = 0;
    for (const auto& future : futures) {
      const absl::StatusOr<int> one = future.Get();
      if (!one.ok()) return Line(one);
      sum += *one;
    }
    return "ok " + std::to_string(sum);
  }

  cohort::Runtime& runtime_;
  cohort::TaskOptions options_;
  std::vector<cohort::Future<int>> waiting_;
  std::map<std::string, cohort::Handle<tasks::Asks>> actors_;
};

}  // namespace

int main(int argc, char** argv) {
  cohort::RuntimeOptions options;
  options.max_waiting_tasks = 1000;
  cohort::Runtime runtime = cohort::Init(argc, argv, options);
  Program program(runtime);
  cohort::itest::Obey(program);
}
