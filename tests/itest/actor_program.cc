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

 private:
  int value_;
};

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
    if (verb == "wait") return Line(pending_.at(std::stoul(name)).Get());
    cohort::Handle<Probe>& probe = probes_.at(name);
    if (verb == "id") return "ok " + probe.id().ToText();
    if (verb == "pid") return Line(probe.Call<&Probe::Pid>().Get());
    if (verb == "gpus") return Line(probe.Call<&Probe::Gpus>().Get());
    if (verb == "kill") {
      const absl::Status killed = runtime_.Kill(probe);
      return Line(killed);
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
    if (verb == "start-add") return Keep(probe.Call<&Probe::Add>(n));
    return "what?";
  }

 private:
  // NAME START RESTARTS RETRIES [CPUS [GPUS [detached]]]
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
    if (in >> lifetime) options.lifetime = cohort::Lifetime::kDetached;
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
  std::vector<cohort::Future<int>> pending_;
};

}  // namespace

int main(int argc, char** argv) {
  Program program(
      cohort::Init(argc, argv, {.driver_timeout = absl::Seconds(2)}));
  cohort::itest::Obey(program);
}
