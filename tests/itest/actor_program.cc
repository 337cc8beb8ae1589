// A driver that does what it is told on its stdin, one command a line, and
// answers each with one line: "ok VALUE", or "CODE REASON MESSAGE".
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "actor/actor.h"
#include "common/status_util.h"
#include "tests/itest/told_program.h"

class Probe {
 public:
  explicit Probe(int start) : value_(start) {
    if (start >= 0) return;
    // NOLINT(cohort-throw): a user's
    throw std::invalid_argument("start is negative");
  }
  int Add(int n) { return value_ += n; }
  int Pid() const { return getpid(); }
  int Throw(const std::string& what) {
    throw std::runtime_error(what);  // NOLINT(cohort-throw): a user's
  }
  int Exit(int code) { _exit(code); }
  // Until somebody writes a line into that pipe.
  int Wait(const std::string& pipe) {
    std::cout << "waits" << std::endl;
    std::ifstream in(pipe);
    std::string line;
    std::getline(in, line);
    return value_;
  }
  std::string Echo(const std::string& text) const { return text; }
  int Length(const std::vector<int>& all) const {
    return static_cast<int>(all.size());
  }
  std::string Gpus() const {
    std::string all;
    for (const std::string& id : cohort::GetGpuIds()) all += id + " ";
    return all;
  }
  std::string Variable(const std::string& name) const {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? "" : value;
  }

  int Save() const { return value_; }
  void Restore(int value) { value_ = value; }

 private:
  int value_;
};

// Calls a probe that it was given.
class Caller {
 public:
  explicit Caller(cohort::Handle<Probe> probe) : probe_(std::move(probe)) {}

  absl::StatusOr<int> Add(int n) { return probe_.Call<&Probe::Add>(n).Get(); }
  absl::StatusOr<int> AddAt(const cohort::Handle<Probe>& probe, int n) {
    return probe.Call<&Probe::Add>(n).Get();
  }
  // By a Runtime of its own.
  absl::StatusOr<int> AddByName(const std::string& name, int n) {
    absl::StatusOr<cohort::Runtime> own = cohort::Runtime::Connect("own");
    if (!own.ok()) return own.status();
    const auto found = own->GetActor<Probe>(name);
    if (!found.ok()) return found.status();
    return found->Call<&Probe::Add>(n).Get();
  }
  cohort::Handle<Probe> Given() const { return probe_; }

 private:
  cohort::Handle<Probe> probe_;
};

absl::StatusOr<int> AddInTask(const cohort::Handle<Probe>& probe, int n) {
  return probe.Call<&Probe::Add>(n).Get();
}
// Of a task.
int Double(int n) { return 2 * n; }

class Other {
 public:
  int Nothing() const { return 0; }
};

namespace {

using cohort::itest::Line;

class Program {
 public:
  explicit Program(cohort::Runtime runtime) : runtime_(std::move(runtime)) {}

  std::string Do(const std::string& line) {
    std::istringstream in(line);
    std::string verb;
    std::string name;
    in >> verb >> name;
    if (verb == "create") return Create(name, in);
    if (verb == "find") return Find(name);
    if (verb == "double") {
      return Line(runtime_.Run<&Double>(std::stoi(name)).Get());
    }
    if (verb == "wait") return Line(pending_.at(std::stoul(name)).Get());
    if (verb == "via") return Via(name, in);
    if (verb == "by-name") return ByName(name, in);
    if (verb == "given") return Given(name);
    cohort::Handle<Probe>& probe = probes_.at(name);
    if (verb == "id") return "ok " + probe.id().ToText();
    if (verb == "pid") return Line(probe.Call<&Probe::Pid>().Get());
    if (verb == "gpus") return Line(probe.Call<&Probe::Gpus>().Get());
    if (verb == "kill") {
      const absl::Status killed = runtime_.Kill(probe);
      return Line(killed);
    }
    if (verb == "save") return Line(probe.Save().Get());
    if (verb == "caller") {
      callers_.push_back(runtime_.Create<Caller>(probe));
      return "ok " + std::to_string(callers_.size() - 1);
    }
    if (verb == "group-add") {
      const auto group =
          runtime_.CreateGroup<Caller>({}, {{"ranks", 10}}, probe);
      const absl::Status called = group.Call<&Caller::Add>(0).Get().status();
      if (!called.ok()) return Line(called);
      return Line(group.Call<&Caller::AddAt>(probe, 1).Get());
    }
    std::string text;
    std::getline(in >> std::ws, text);
    if (verb == "echo") return Line(probe.Call<&Probe::Echo>(text).Get());
    if (verb == "env") return Line(probe.Call<&Probe::Variable>(text).Get());
    if (verb == "throw") return Line(probe.Call<&Probe::Throw>(text).Get());
    if (verb == "start-wait") return Keep(probe.Call<&Probe::Wait>(text));
    const int n = std::stoi(text);
    if (verb == "add") return Line(probe.Call<&Probe::Add>(n).Get());
    if (verb == "exit") return Line(probe.Call<&Probe::Exit>(n).Get());
    if (verb == "length") {
      const std::vector<int> all(static_cast<size_t>(n));
      return Line(probe.Call<&Probe::Length>(all).Get());
    }
    if (verb == "task-add") {
      return Line(runtime_.Run<&AddInTask>(probe, n).Get());
    }
    if (verb == "start-add") return Keep(probe.Call<&Probe::Add>(n));
    return "what?";
  }

 private:
  // CALLER N [PROBE]: of that probe, else of the caller's own
  std::string Via(const std::string& caller, std::istringstream& in) {
    const cohort::Handle<Caller>& handle = callers_.at(std::stoul(caller));
    int n = 0;
    std::string probe;
    if (!(in >> n >> probe)) return Line(handle.Call<&Caller::Add>(n).Get());
    return Line(handle.Call<&Caller::AddAt>(probes_.at(probe), n).Get());
  }
  // CALLER PROBE N
  std::string ByName(const std::string& caller, std::istringstream& in) {
    int n = 0;
    std::string probe;
    in >> probe >> n;
    return Line(callers_.at(std::stoul(caller))
                    .Call<&Caller::AddByName>(probe, n)
                    .Get());
  }
  // What a caller was given, from now on "given".
  std::string Given(const std::string& caller) {
    const absl::StatusOr<cohort::Handle<Probe>> given =
        callers_.at(std::stoul(caller)).Call<&Caller::Given>().Get();
    if (given.ok()) probes_.insert_or_assign("given", *given);
    return Line(given.status());
  }
  // NAME START RESTARTS RETRIES [CPUS [GPUS [detached | STORAGE]]]
  std::string Create(const std::string& name, std::istringstream& in) {
    cohort::ActorOptions options;
    options.name = name;
    int start = 0;
    double cpus = 0;
    double gpus = 0;
    std::string lifetime;
    in >> start >> options.max_restarts >> options.max_task_retries;
    if (in >> cpus) options.num_cpus = cpus;
    if (in >> gpus) options.num_gpus = gpus;
    if (in >> lifetime && lifetime == "detached") {
      options.lifetime = cohort::Lifetime::kDetached;
    } else {
      options.storage_path = lifetime;
    }
    options.env_vars["PROBE"] = name;
    probes_.insert_or_assign(name, runtime_.Create<Probe>(options, start));
    return "ok";
  }
  std::string Find(const std::string& name) {
    const auto found = runtime_.GetActor<Probe>(name);
    if (!found.ok()) return Line(found.status());
    const auto other = runtime_.GetActor<Other>(name);
    if (cohort::GetReason(other.status()) != "wrong_class") return "any class";
    probes_.insert_or_assign(name, *found);
    return "ok";
  }
  std::string Keep(cohort::Future<int> future) {
    pending_.push_back(std::move(future));
    return "ok " + std::to_string(pending_.size() - 1);
  }

  cohort::Runtime runtime_;
  std::map<std::string, cohort::Handle<Probe>> probes_;
  std::vector<cohort::Handle<Caller>> callers_;
  std::vector<cohort::Future<int>> pending_;
};

}  // namespace

int main(int argc, char** argv) {
  cohort::RuntimeOptions options{.driver_timeout = absl::Seconds(2)};
  const char* const head_timeout_s = std::getenv("HEAD_TIMEOUT_S");
  if (head_timeout_s != nullptr) {
    options.head_timeout = absl::Seconds(std::stoi(head_timeout_s));
  }
  Program program(cohort::Init(argc, argv, std::move(options)));
  cohort::itest::Obey(program);
}
