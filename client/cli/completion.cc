#include "client/cli/completion.h"

#include <cstddef>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/cli/command.h"
#include "client/message_text.h"

namespace cohort::cli {
namespace {

// Of everything that is asked: a person waits with a finger on the key.
constexpr absl::Duration kPatience = absl::Milliseconds(500);
constexpr size_t kJobsMax = 500;
constexpr size_t kIdDigits = 8;

bool IsFlag(absl::string_view word) {
  return word.size() > 1 && word.front() == '-';
}

const CLI::App* FindCommand(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
  }
  return nullptr;
}

// The option that `word` is, if its value is the next word.
const CLI::Option* TakingNext(const CLI::App& app, const std::string& word) {
  const CLI::Option* const option =
      IsFlag(word) ? app.get_option_no_throw(word) : nullptr;
  return option != nullptr && option->get_items_expected_max() > 0 ? option
                                                                   : nullptr;
}

// By what the help calls it: JOB, JOB[:ok|:any], NODE.
void Take(const std::string& what, CompletionPoint& point) {
  point.takes_job |= absl::StartsWith(what, "JOB");
  point.takes_node |= what == "NODE";
}

void AddFlagsOf(const CLI::App& app, CompletionPoint& point) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      point.words.push_back(absl::StrCat("--", name));
    }
  }
}

// A job by name, else by its id: who has named it knows the name.
void AddJobWords(const Cluster& cluster, std::set<std::string>& found) {
  const absl::StatusOr<JobList> list =
      cluster.List({.fold_arrays = true, .limit = kJobsMax}, kPatience);
  if (!list.ok()) return;
  for (const Job& job : list->jobs) {
    found.insert(IdText(job.job_id()).substr(0, kIdDigits));
    if (!job.name().empty()) found.insert(job.name());
  }
  found.insert("last");
}

void AddNodeWords(const Cluster& cluster, std::set<std::string>& found) {
  const absl::StatusOr<std::vector<Node>> nodes = cluster.Nodes(kPatience);
  if (!nodes.ok()) return;
  for (const Node& node : *nodes) found.insert(node.name());
}

}  // namespace

CompletionPoint FindCompletion(const CLI::App& cohort,
                               const std::vector<std::string>& words) {
  CompletionPoint point;
  if (words.empty()) return point;
  const CLI::App* app = &cohort;
  const CLI::Option* option = nullptr;  // whose value comes
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "--") return point;  // a command of somebody else's
    if (option != nullptr) {
      option = nullptr;
      continue;
    }
    option = TakingNext(*app, words[i]);
    const CLI::App* const command = FindCommand(*app, words[i]);
    if (command != nullptr) app = command;
  }
  if (option != nullptr) {
    Take(option->get_option_text(), point);
  } else if (IsFlag(words.back())) {
    AddFlagsOf(*app, point);
  } else {
    for (const CLI::App* command : app->get_subcommands({})) {
      point.words.push_back(command->get_name());
    }
    for (const CLI::Option* each : app->get_options()) {
      if (each->get_positional()) Take(each->get_name(), point);
    }
  }
  return point;
}

void PrintCompletions(const CLI::App& cohort,
                      const std::vector<std::string>& words) {
  const CompletionPoint point = FindCompletion(cohort, words);
  std::set<std::string> found(point.words.begin(), point.words.end());
  if (point.takes_job || point.takes_node) {
    Invocation silent;
    silent.json = true;  // says nothing of a head that is away
    const auto cluster = Connect(silent, kPatience);
    if (cluster.ok() && point.takes_job) AddJobWords(**cluster, found);
    if (cluster.ok() && point.takes_node) AddNodeWords(**cluster, found);
  }
  std::string text;
  for (const std::string& word : found) {
    if (absl::StartsWith(word, words.back()))
      absl::StrAppend(&text, word, "\n");
  }
  PrintRaw(text).IgnoreError();
}

}  // namespace cohort::cli
