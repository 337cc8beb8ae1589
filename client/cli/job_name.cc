#include "client/cli/job_name.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "client/cli/errors.h"
#include "client/message_text.h"
#include "common/file.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "rpc/enum_text.h"

namespace cohort::cli {
namespace {

constexpr char kScopedHelp[] = "A name, an id, or a beginning of one";
constexpr char kJobHelp[] =
    "An id or a beginning of one, a name, `last` or `last~N`; `.INDEX` after "
    "it names an element of an array";

// `last` reaches back so far: a line of the file is some 60 bytes.
constexpr size_t kRecentBytesMax = 64 << 10;
// The number of candidates that an error lists.
constexpr size_t kCandidatesMax = 10;

absl::Status NoSuchJob(const JobScope& scope, const std::string& text,
                       absl::string_view why) {
  return SetReason(
      absl::NotFoundError(absl::StrCat("there is no ", scope.noun, " ",
                                       Shown(text), ": ", why)),
      absl::StrCat("unknown_", scope.noun));
}

absl::Status Ambiguous(const JobScope& scope, const std::string& text,
                       const JobList& list) {
  std::vector<std::string> candidates;
  for (const Job& job : list.jobs) {
    if (candidates.size() == kCandidatesMax) break;
    candidates.push_back(
        absl::StrCat(IdText(job.job_id()), " ", EnumText(job.state())));
  }
  if (list.is_cut || candidates.size() < list.jobs.size()) {
    candidates.push_back("and more");
  }
  return SetReason(absl::FailedPreconditionError(absl::StrCat(
                       Shown(text), " names several ", scope.noun, "s: ",
                       absl::StrJoin(candidates, ", "), " (give one id)")),
                   absl::StrCat("ambiguous_", scope.noun));
}

// ---- last ----

// As the XDG Base Directory Specification says; empty for a user without a
// home.
std::string RecentJobsPath() {
  for (const auto& [variable, below] :
       {std::pair("XDG_STATE_HOME", "/cohort/recent-jobs"),
        std::pair("HOME", "/.local/state/cohort/recent-jobs")}) {
    const char* const base = std::getenv(variable);
    if (base != nullptr && *base == '/') return absl::StrCat(base, below);
  }
  return "";
}

// The jobs submitted to `address`, oldest first.
std::vector<JobId> RecentJobs(absl::string_view address) {
  const absl::StatusOr<std::string> text =
      ReadFile(RecentJobsPath(), 2 * kRecentBytesMax);
  if (!text.ok()) return {};
  std::vector<JobId> jobs;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> words =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    const absl::StatusOr<JobId> job = JobId::FromText(words.second);
    if (words.first == address && job.ok()) jobs.push_back(*job);
  }
  return jobs;
}

// N of "last~N", 0 of "last"; none when it is not such a text.
std::optional<size_t> StepsBack(absl::string_view text) {
  if (text == "last") return 0;
  size_t steps = 0;
  if (!absl::ConsumePrefix(&text, "last~") ||
      !absl::c_all_of(text, absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &steps)) {
    return std::nullopt;
  }
  return steps;
}

// They were removed, or their cluster is another one by now.
void ForgetRecent(absl::string_view address, const std::set<JobId>& gone) {
  const std::string path = RecentJobsPath();
  const absl::StatusOr<std::string> text = ReadFile(path, 2 * kRecentBytesMax);
  if (!text.ok() || gone.empty()) return;
  std::set<std::string> lines;
  for (const JobId& job : gone) {
    lines.insert(absl::StrCat(address, " ", job.ToText()));
  }
  std::string kept;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    if (line.empty() || lines.contains(std::string(line))) continue;
    absl::StrAppend(&kept, line, "\n");
  }
  WriteFileAtomically(path, kept, 0600).IgnoreError();
}

// Counts only jobs that the head knows.
absl::StatusOr<JobId> FindRecent(const Cluster& cluster,
                                 const std::string& text, size_t steps) {
  std::vector<JobId> jobs = RecentJobs(cluster.address());
  std::reverse(jobs.begin(), jobs.end());
  std::set<JobId> gone;
  size_t known = 0;
  for (const JobId& job : jobs) {
    const absl::Status found = cluster.Get(job).status();
    if (absl::IsNotFound(found)) {
      gone.insert(job);
      continue;
    }
    COHORT_RETURN_IF_ERROR(found);
    if (known++ < steps) continue;
    ForgetRecent(cluster.address(), gone);
    return job;
  }
  ForgetRecent(cluster.address(), gone);
  return NoSuchJob(
      {}, text,
      absl::StrCat(known == 0   ? "you have submitted none"
                   : known == 1 ? "you have submitted one"
                                : absl::StrCat("you have submitted ", known),
                   " to ", cluster.address(), " that it still knows"));
}

// ---- names and ids ----

// The only job of that name, else the only one of them that has not ended.
absl::StatusOr<std::optional<JobId>> FindByName(const Cluster& cluster,
                                                const std::string& text,
                                                const JobScope& scope) {
  COHORT_ASSIGN_OR_RETURN(const JobList all,
                          cluster.List({.name_space = scope.name_space,
                                        .name = text,
                                        .fold_arrays = true,
                                        .kinds = scope.kinds}));
  if (all.jobs.empty()) return std::nullopt;
  std::vector<const Job*> meant;
  for (const Job& job : all.jobs) {
    if (all.jobs.size() == 1 || !HasEnded(job.state())) meant.push_back(&job);
  }
  if (meant.size() != 1 || all.is_cut) return Ambiguous(scope, text, all);
  COHORT_ASSIGN_OR_RETURN(const JobId id,
                          JobId::FromBytes(meant.front()->job_id()));
  return id;
}

// Only digits that can begin an id.
bool IsBeginning(absl::string_view text) {
  return !text.empty() && text.size() < 2 * JobId::kBytes &&
         absl::c_all_of(text, absl::ascii_isxdigit);
}

absl::StatusOr<std::optional<JobId>> FindByBeginning(const Cluster& cluster,
                                                     const std::string& text,
                                                     const JobScope& scope) {
  if (!IsBeginning(text)) return std::nullopt;
  COHORT_ASSIGN_OR_RETURN(
      const JobList list,
      cluster.List({.id_prefix = absl::AsciiStrToLower(text),
                    .fold_arrays = true,
                    .kinds = scope.kinds,
                    .limit = kCandidatesMax}));
  if (list.jobs.empty()) return std::nullopt;
  if (list.jobs.size() > 1) return Ambiguous(scope, text, list);
  COHORT_ASSIGN_OR_RETURN(const JobId id,
                          JobId::FromBytes(list.jobs.front().job_id()));
  return id;
}

// Not an element, unless that is the job's own name.
absl::StatusOr<std::optional<JobId>> FindWhole(const Cluster& cluster,
                                               const std::string& text,
                                               const JobScope& scope) {
  if (const std::optional<size_t> steps = StepsBack(text);
      steps.has_value() && scope.kinds.empty()) {
    COHORT_ASSIGN_OR_RETURN(const JobId id, FindRecent(cluster, text, *steps));
    return id;
  }
  COHORT_ASSIGN_OR_RETURN(std::optional<JobId> found,
                          FindByName(cluster, text, scope));
  if (found.has_value()) return found;
  return FindByBeginning(cluster, text, scope);
}

// Finds "train.3", "last.3" or "12ab.3".
absl::StatusOr<std::optional<JobId>> FindElement(const Cluster& cluster,
                                                 const std::string& text,
                                                 const JobScope& scope) {
  const size_t dot = text.rfind('.');
  if (dot == std::string::npos) return std::nullopt;
  // Whether ".3" can follow an id is asked before anybody else.
  const absl::string_view index = absl::string_view(text).substr(dot);
  if (!JobId::FromText(absl::StrCat(std::string(2 * JobId::kBytes, 'f'), index))
           .ok()) {
    return std::nullopt;
  }
  COHORT_ASSIGN_OR_RETURN(const std::optional<JobId> array,
                          FindWhole(cluster, text.substr(0, dot), scope));
  if (!array.has_value()) return std::nullopt;
  COHORT_ASSIGN_OR_RETURN(const JobId element, JobId::FromText(absl::StrCat(
                                                   array->ToText(), index)));
  return element;
}

void AddNamespaceFlag(CLI::App& command, JobScope& scope) {
  command
      .add_option("--namespace", scope.name_space,
                  "The namespace of the name (default: any)")
      ->option_text("S");
}

}  // namespace

bool NamesRecentJob(absl::string_view text) {
  return StepsBack(text).has_value();
}

absl::Status EmptyName(const std::string& noun) {
  return UsageError(absl::StrCat("the ", noun,
                                 "'s name or id is empty: `cohort ", noun,
                                 "s` shows names and ids"));
}

absl::StatusOr<JobId> FindJob(const Cluster& cluster, const std::string& text,
                              const JobScope& scope) {
  if (text.empty()) return EmptyName(scope.noun);
  if (absl::StatusOr<JobId> id = JobId::FromText(text); id.ok()) return id;
  COHORT_ASSIGN_OR_RETURN(std::optional<JobId> found,
                          FindWhole(cluster, text, scope));
  if (!found.has_value()) {
    COHORT_ASSIGN_OR_RETURN(found, FindElement(cluster, text, scope));
  }
  if (found.has_value()) return *found;
  return NoSuchJob(
      scope, text,
      absl::StrCat("no ", scope.noun,
                   " has that name or an id that begins with it (`cohort ",
                   scope.noun, "s` shows both)"));
}

void RememberJob(const Cluster& cluster, const JobId& job) {
  const std::string path = RecentJobsPath();
  if (path.empty() || !MakeDirectories(ParentDirectory(path), 0700).ok()) {
    return;
  }
  std::ofstream(path, std::ios::app)
      << absl::StrCat(cluster.address(), " ", job.ToText(), "\n");
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error || bytes <= kRecentBytesMax) return;
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return;
  const size_t kept = text->find('\n', text->size() / 2);
  WriteFileAtomically(path, text->substr(kept + 1), 0600).IgnoreError();
}

void AddJobArgument(CLI::App& command, std::string& job) {
  command.add_option("JOB", job, kJobHelp)->required();
}

CLI::Option* AddJobsArgument(CLI::App& command,
                             std::vector<std::string>& jobs) {
  return command.add_option("JOB", jobs, kJobHelp)->option_text("...");
}

void AddScopedArgument(CLI::App& command, std::string& name, JobScope& scope) {
  if (scope.kinds.empty()) return AddJobArgument(command, name);
  command.add_option(absl::AsciiStrToUpper(scope.noun), name, kScopedHelp)
      ->required();
  AddNamespaceFlag(command, scope);
}

void AddScopedArguments(CLI::App& command, std::vector<std::string>& names,
                        JobScope& scope) {
  command.add_option(absl::AsciiStrToUpper(scope.noun), names, kScopedHelp)
      ->required()
      ->option_text("...");
  AddNamespaceFlag(command, scope);
}

}  // namespace cohort::cli
