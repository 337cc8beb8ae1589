// A driver of groups that does what it is told on its stdin, one command a
// line, and answers each with one line: "ok VALUES", or "CODE REASON MESSAGE".
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "actor/actor.h"
#include "tests/itest/told_program.h"

class Member {
 public:
  // A negative one fails in the rank that it names.
  explicit Member(int start) : value_(start) {
    if (start != -Rank() || start == 0) return;
    throw std::runtime_error("no");  // NOLINT(cohort-throw): a user's
  }
  int Add(int n) { return value_ += n; }
  int Pid() const { return getpid(); }
  int Rank() const { return cohort::ThisRank().rank(); }
  // "hosts 1 gpus 3 next 4", the last in the last dimension.
  std::string Place() const {
    const cohort::GroupRank& rank = cohort::ThisRank();
    std::string text;
    for (const cohort::Dimension& each : rank.dimensions()) {
      text +=
          each.name + " " + std::to_string(*rank.Coordinate(each.name)) + " ";
    }
    return text + "next " +
           std::to_string(*rank.Neighbour(rank.dimensions().back().name));
  }
  int ThrowAt(int rank) const {
    if (Rank() != rank) return rank;
    throw std::runtime_error("cannot");  // NOLINT(cohort-throw): a user's
  }
  // Until somebody writes a line into that pipe.
  int Wait(const std::string& pipe) {
    std::cout << "waits" << std::endl;
    std::ifstream in(pipe);
    std::string line;
    std::getline(in, line);
    return value_;
  }
  // Through another one, for which this waits.
  int Ask(const cohort::Handle<Member>& other) const {
    return *other.Call<&Member::Rank>().Get();
  }
  int Log(const std::string& text) {
    log_ += text;
    return 0;
  }
  std::string ReadLog() const { return log_; }

 private:
  int value_;
  std::string log_;
};

// Keeps what it has.
class Saver {
 public:
  int Add(int n) { return sum_ += n; }
  int Save() const { return sum_; }
  void Restore(int sum) { sum_ = sum; }
  int Pid() const { return getpid(); }

 private:
  int sum_ = 0;
};

// Holds a handle for those who ask.
class Keeper {
 public:
  explicit Keeper(cohort::Handle<Member> member) : member_(member) {}
  cohort::Handle<Member> Given() const { return member_; }

 private:
  cohort::Handle<Member> member_;
};

class Other {
 public:
  int Nothing() const { return 0; }
};

// One of the user's own.
struct LongerText {
  std::string operator()(std::string a, std::string b) const {
    return a.size() >= b.size() ? a : b;
  }
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
    if (verb == "add-kept") return AddKept(name);
    if (verb == "savers") return Savers(name);
    if (verb == "save") return Line(savers_.at(std::stoi(name)).Save().Get());
    if (verb == "save-add") {
      return Line(savers_.Call<&Saver::Add>(std::stoi(name)).Get());
    }
    if (verb == "save-pids") return Line(savers_.Call<&Saver::Pid>().Get());
    if (verb == "wait") return Line(pending_.at(std::stoul(name)).Get());
    const cohort::Group<Member>& group = groups_.at(name);
    if (verb == "id") return "ok " + group.id().ToText();
    if (verb == "slice") return Slice(group, in);
    if (verb == "ranks") return Line(group.Call<&Member::Rank>().Get());
    if (verb == "places") return Line(group.Call<&Member::Place>().Get());
    if (verb == "pids") return Line(group.Call<&Member::Pid>().Get());
    if (verb == "sum") {
      return Line(group.Reduce<&Member::Rank, cohort::Sum>().Get());
    }
    if (verb == "most") {
      return Line(group.Reduce<&Member::Rank, cohort::Max>().Get());
    }
    if (verb == "all-places") {
      return Line(group.Reduce<&Member::Place, cohort::Concatenate>().Get());
    }
    if (verb == "longest") {
      return Line(group.Reduce<&Member::Place, LongerText>().Get());
    }
    if (verb == "orders") return Orders(group);
    if (verb == "kill") {
      const absl::Status killed = runtime_.Kill(group);
      return Line(killed);
    }
    std::string text;
    std::getline(in >> std::ws, text);
    if (verb == "keep") {
      const auto keeper = runtime_.Create<Keeper>(
          {.name = "keeper", .lifetime = cohort::Lifetime::kDetached},
          group.at(std::stoi(text)));
      return Line(keeper.Call<&Keeper::Given>().Get().status());
    }
    if (verb == "start-wait") {
      pending_.push_back(group.Call<&Member::Wait>(text));
      return "ok " + std::to_string(pending_.size() - 1);
    }
    if (verb == "ask") return Ask(group, text);
    const int n = std::stoi(text);
    if (verb == "kill-rank") return Line(runtime_.Kill(group.at(n)));
    if (verb == "add") return Line(group.Call<&Member::Add>(n).Get());
    if (verb == "add-at") return Line(group.at(n).Call<&Member::Add>(1).Get());
    if (verb == "each") return Each(group.CallEach<&Member::Add>(n));
    if (verb == "throw-at") {
      return Line(group.Call<&Member::ThrowAt>(n).Get());
    }
    return "what?";
  }

 private:
  std::string Find(const std::string& name) {
    const auto found = runtime_.GetGroup<Member>(name);
    if (!found.ok()) return Line(found.status());
    const auto other = runtime_.GetGroup<Other>(name);
    if (cohort::GetReason(other.status()) != "wrong_class") return "any class";
    const auto alone = runtime_.GetActor<Member>(name);
    if (cohort::GetReason(alone.status()) != "wrong_kind") return "any kind";
    groups_.insert_or_assign(name, *found);
    return "ok";
  }
  std::string AddKept(const std::string& keeper) {
    const auto found = runtime_.GetActor<Keeper>(keeper);
    if (!found.ok()) return Line(found.status());
    const auto member = found->Call<&Keeper::Given>().Get();
    if (!member.ok()) return Line(member.status());
    return Line(member->Call<&Member::Add>(1).Get());
  }
  // Four in two processes.
  std::string Savers(const std::string& name) {
    savers_ = runtime_.CreateGroup<Saver>(
        {.name = name, .max_restarts = 3, .processes = 2}, {{"ranks", 4}});
    return "ok";
  }
  // FROM TO
  static std::string Ask(const cohort::Group<Member>& group,
                         const std::string& text) {
    std::istringstream in(text);
    int from = 0;
    int to = 0;
    in >> from >> to;
    return Line(group.at(from).Call<&Member::Ask>(group.at(to)).Get());
  }
  // NAME RESTART MAX_RESTARTS CPUS START DIMENSION=SIZE... processes:N
  std::string Create(const std::string& name, std::istringstream& in) {
    cohort::ActorOptions options;
    options.name = name;
    std::string restart;
    double cpus = 0;
    int start = 0;
    in >> restart >> options.max_restarts >> cpus >> start;
    options.restart = *cohort::ParseRestartPolicy(restart);
    options.num_cpus = cpus;
    std::vector<cohort::Dimension> dimensions;
    for (std::string each; in >> each;) {
      if (each == "detached") {
        options.lifetime = cohort::Lifetime::kDetached;
        continue;
      }
      if (each.starts_with("processes:")) {
        options.processes = std::stoi(each.substr(each.find(':') + 1));
        continue;
      }
      const size_t at = each.find('=');
      dimensions.push_back(
          {each.substr(0, at), std::stoi(each.substr(at + 1))});
    }
    if (dimensions.empty()) {
      lone_.push_back(runtime_.Create<Member>(options, start));
      if (options.processes != 0) {
        return Line(lone_.back().Call<&Member::Rank>().Get());
      }
      return "ok";
    }
    groups_.insert_or_assign(
        name, runtime_.CreateGroup<Member>(options, dimensions, start));
    return "ok";
  }
  // NEW DIMENSION BEGIN END
  std::string Slice(const cohort::Group<Member>& group,
                    std::istringstream& in) {
    std::string name;
    std::string dimension;
    int begin = 0;
    int end = 0;
    in >> name >> dimension >> begin >> end;
    groups_.insert_or_assign(name, group.Slice(dimension, begin, end));
    return "ok";
  }
  static std::string Each(const std::vector<cohort::Future<int>>& futures) {
    std::string all = "ok";
    for (const cohort::Future<int>& each : futures) {
      const absl::StatusOr<int> value = each.Get();
      all += value.ok() ? " " + std::to_string(*value)
                        : " " + cohort::GetReason(value.status());
    }
    return all;
  }
  // By turns to all, to one, and to a slice, without waiting: what each rank
  // was told, in its order.
  static std::string Orders(const cohort::Group<Member>& group) {
    const std::string first = group.dimensions().front().name;
    for (int i = 0; i < 20; ++i) {
      group.Call<&Member::Log>("a");
      group.at(group.size() - 1).Call<&Member::Log>("b");
      group.Slice(first, 0, 1).Call<&Member::Log>("c");
    }
    return Line(group.Call<&Member::ReadLog>().Get());
  }

  cohort::Runtime runtime_;
  std::map<std::string, cohort::Group<Member>> groups_;
  cohort::Group<Saver> savers_;
  std::vector<cohort::Handle<Member>> lone_;
  std::vector<cohort::Future<std::vector<int>>> pending_;
};

}  // namespace

int main(int argc, char** argv) {
  Program program(
      cohort::Init(argc, argv, {.driver_timeout = absl::Seconds(2)}));
  cohort::itest::Obey(program);
}
