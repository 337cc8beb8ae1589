#include "client/cli/completion.h"

#include <cstddef>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "client/cli/command.h"
#include "client/cli/job_list.h"
#include "client/message_text.h"

namespace cohort::cli {
namespace {

// Bounds all that completion asks: a person waits with a finger on the key.
constexpr absl::Duration kTimeout = absl::Milliseconds(500);
constexpr size_t kJobsMax = 500;
constexpr size_t kIdDigits = 8;
constexpr char kBetweenValues[] = "|";

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

using Words = std::set<std::string>;
using AddWords = void (*)(const Cluster& cluster, const CompletionPoint& point,
                          Words& found);

// A job by name, else by its id: who has named it knows the name.  False: the
// head does not answer.
bool AddNamesOf(const Cluster& cluster, std::vector<JobKind> kinds,
                const CompletionPoint& point, Words& found) {
  const absl::StatusOr<JobList> list = cluster.List({.states = point.states,
                                                     .fold_arrays = true,
                                                     .kinds = std::move(kinds),
                                                     .limit = kJobsMax},
                                                    kTimeout);
  if (!list.ok()) return false;
  for (const Job& job : list->jobs) {
    found.insert(IdText(job.job_id()).substr(0, kIdDigits));
    if (!job.name().empty()) found.insert(job.name());
  }
  return true;
}

void AddJobWords(const Cluster& cluster, const CompletionPoint& point,
                 Words& found) {
  if (AddNamesOf(cluster,
                 {v1::JOB_KIND_JOB, v1::JOB_KIND_ACTOR, v1::JOB_KIND_GROUP},
                 point, found)) {
    found.insert("last");
  }
}

void AddActorWords(const Cluster& cluster, const CompletionPoint& point,
                   Words& found) {
  AddNamesOf(cluster, {v1::JOB_KIND_ACTOR, v1::JOB_KIND_GROUP}, point, found);
}

void AddGroupWords(const Cluster& cluster, const CompletionPoint& point,
                   Words& found) {
  AddNamesOf(cluster, {v1::JOB_KIND_GROUP}, point, found);
}

void AddNodeWords(const Cluster& cluster, const CompletionPoint&,
                  Words& found) {
  const absl::StatusOr<std::vector<Node>> nodes = cluster.Nodes(kTimeout);
  if (!nodes.ok()) return;
  for (const Node& node : *nodes) found.insert(node.name());
}

void AddGpuWords(const Cluster& cluster, const CompletionPoint&, Words& found) {
  const absl::StatusOr<std::vector<Node>> nodes = cluster.Nodes(kTimeout);
  if (!nodes.ok()) return;
  for (const Node& node : *nodes) {
    for (const v1::Device& device : node.devices()) {
      if (device.kind() == "gpu") found.insert(device.id());
    }
  }
}

void AddAttemptWords(const Cluster& cluster, const CompletionPoint&,
                     Words& found) {
  const absl::StatusOr<ClusterStatus> status = cluster.Status(kTimeout);
  if (!status.ok()) return;
  for (const v1::OrphanAttempt& orphan : status->orphans()) {
    found.insert(IdText(orphan.attempt_id()));
  }
}

// By what the help calls an argument.
constexpr std::pair<absl::string_view, AddWords> kNouns[] = {
    {"JOB", AddJobWords},     {"ACTOR", AddActorWords},
    {"GROUP", AddGroupWords}, {"NODE", AddNodeWords},
    {"GPU", AddGpuWords},     {"ATTEMPT", AddAttemptWords},
};

// Takes the noun that an argument is named after: "JOB", "JOB[:ok|:any]".
void Take(const std::string& what, CompletionPoint& point) {
  for (const auto& each : kNouns) {
    absl::string_view rest = what;
    if (!absl::ConsumePrefix(&rest, each.first)) continue;
    if (rest.empty() || !absl::ascii_isupper(rest.front())) {
      point.nouns.insert(std::string(each.first));
    }
  }
}

// Its type's name, which nothing else needs, has them: see OfferValues.
void TakeValueOf(const CLI::Option& option, CompletionPoint& point) {
  Take(option.get_option_text(), point);
  const std::string type = option.get_type_name();
  if (absl::StrContains(type, kBetweenValues)) {
    point.words = absl::StrSplit(type, kBetweenValues);
  }
  const size_t comma = point.begun.rfind(option.get_delimiter());
  if (option.get_delimiter() == '\0' || comma == std::string::npos) return;
  absl::StrAppend(&point.kept, point.begun.substr(0, comma + 1));
  point.begun.erase(0, comma + 1);
}

// The positional that comes after `given` others; null: there is none.
const CLI::Option* PositionalAfter(const CLI::App& app, size_t given) {
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    if (given == 0 || option->get_items_expected_max() > 1) return option;
    --given;
  }
  return nullptr;
}

// Without the words "=" that bash makes of "--flag=value" and "K=V".
std::vector<std::string> JoinAssignments(
    const std::vector<std::string>& words) {
  std::vector<std::string> joined;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != "=" || joined.empty()) {
      joined.push_back(words[i]);
    } else if (i + 1 == words.size()) {
      joined.emplace_back();
    } else if (!IsFlag(joined.back())) {
      absl::StrAppend(&joined.back(), "=", words[++i]);
    }
  }
  return joined;
}

void AddFlagsOf(const CLI::App& app, CompletionPoint& point) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      point.words.push_back(absl::StrCat("--", name));
    }
  }
}

// Those of the jobs that the command `name` may change.
std::vector<JobState> StatesFor(const std::string& name) {
  if (name == "remove") return EndedStates();
  const bool changes_live =
      name == "stop" || name == "hold" || name == "release" || name == "resize";
  return changes_live ? LiveStates() : std::vector<JobState>();
}

void CompleteWord(const CLI::App& app, size_t given, CompletionPoint& point) {
  point.states = StatesFor(app.get_name());
  if (IsFlag(point.begun)) return AddFlagsOf(app, point);
  for (const CLI::App* command : app.get_subcommands({})) {
    point.words.push_back(command->get_name());
  }
  // A command of its own name: help's, which is none of CLI11's.
  if (app.get_parent() == nullptr) point.words.emplace_back("help");
  const CLI::Option* const positional = PositionalAfter(app, given);
  if (positional != nullptr) Take(positional->get_name(), point);
}

}  // namespace

CLI::Option* OfferValues(CLI::Option* option,
                         const std::vector<std::string>& values) {
  return option->type_name(absl::StrJoin(values, kBetweenValues));
}

CompletionPoint FindCompletion(const CLI::App& cohort,
                               const std::vector<std::string>& words) {
  CompletionPoint point;
  if (words.empty()) return point;
  std::vector<std::string> line = JoinAssignments(words);
  if (line.size() > 1 && line.front() == "help") line.erase(line.begin());
  const size_t equals = line.back().find('=');
  if (IsFlag(line.back()) && equals != std::string::npos) {
    point.kept = line.back().substr(0, equals + 1);
    line.push_back(line.back().substr(equals + 1));
    line[line.size() - 2].resize(equals);
  }
  point.begun = line.back();
  const CLI::App* app = &cohort;
  const CLI::Option* option = nullptr;  // whose value comes
  size_t given = 0;                     // positionals of `app`
  for (size_t i = 0; i + 1 < line.size(); ++i) {
    if (line[i] == "--") return point;  // a command of somebody else's
    if (option != nullptr) {
      option = nullptr;
      continue;
    }
    option = TakingNext(*app, line[i]);
    if (IsFlag(line[i])) continue;
    const CLI::App* const command = FindCommand(*app, line[i]);
    if (command == nullptr) ++given;
    if (command != nullptr) app = command;
  }
  if (option != nullptr) {
    TakeValueOf(*option, point);
  } else {
    CompleteWord(*app, given, point);
  }
  return point;
}

void PrintCompletions(const CLI::App& cohort,
                      const std::vector<std::string>& words) {
  const CompletionPoint point = FindCompletion(cohort, words);
  std::set<std::string> found(point.words.begin(), point.words.end());
  if (!point.nouns.empty()) {
    Invocation silent;
    silent.json = true;  // says nothing of a head that is away
    const auto cluster = Connect(silent, kTimeout);
    for (const auto& each : kNouns) {
      if (cluster.ok() && point.nouns.contains(std::string(each.first))) {
        each.second(**cluster, point, found);
      }
    }
  }
  std::string text;
  for (const std::string& word : found) {
    if (!absl::StartsWith(word, point.begun)) continue;
    absl::StrAppend(&text, point.kept, word, "\n");
  }
  PrintRaw(text).IgnoreError();
}

}  // namespace cohort::cli
