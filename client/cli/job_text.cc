#include "client/cli/job_text.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "client/cli/fields.h"
#include "client/cli/progress.h"
#include "client/message_text.h"
#include "common/duration_text.h"
#include "common/exception_text.h"
#include "common/job_id.h"
#include "common/printable_text.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::cli {
namespace {

constexpr size_t kSecretsShown = 8;
constexpr size_t kIdDigitsShown = 8;
constexpr size_t kNameBytesMax = 24;
// Where lines are short: WHY matters more.
constexpr size_t kNarrowColumns = 100;
constexpr size_t kNarrowNameBytesMax = 16;
// Tables cut longer reasons; `jobs get` shows all.
constexpr size_t kReasonBytesMax = 60;

}  // namespace

std::string Shortened(const std::string& text) {
  const std::string line = OneLine(text);
  if (line.size() <= kReasonBytesMax) return line;
  return Cut(line, kReasonBytesMax - 3) + "...";
}

std::string Indented(absl::string_view lines) {
  std::string text;
  for (const absl::string_view line :
       absl::StrSplit(absl::StripSuffix(lines, "\n"), '\n')) {
    const size_t own = std::min(line.find_first_not_of(' '), line.size());
    absl::StrAppend(&text, line.empty() ? "" : "  ", line.substr(0, own),
                    OneLine(line), "\n");
  }
  return text;
}

std::string RoundedAge(absl::Duration age) {
  if (age >= absl::Hours(24)) return AgeText(absl::Trunc(age, absl::Hours(1)));
  if (age >= absl::Hours(1)) return AgeText(absl::Trunc(age, absl::Minutes(1)));
  return AgeText(age);
}

namespace {

// How long its ranks have run or did run.
std::string RunningTime(const Job& job) {
  return job.has_ran() ? AgeText(rpc::FromWire(job.ran())) : "-";
}

std::string ExitText(const ExitStatus& exit) {
  std::string text = exit.signal() != 0 ? absl::StrCat("signal ", exit.signal())
                                        : absl::StrCat("code ", exit.code());
  if (exit.oom_killed()) absl::StrAppend(&text, ", out of memory");
  if (!exit.detail().empty()) {
    absl::StrAppend(&text, ", ", FirstLine(exit.detail()));
  }
  return text;
}

// The exit of the rank that failed first, and its number.
std::string ExitText(const Job& job) {
  if (!job.has_exit()) {
    return job.state() == v1::JOB_STATE_SUCCEEDED ? "code 0" : "-";
  }
  return job.failed_rank() < 0 ? ExitText(job.exit())
                               : absl::StrCat(ExitText(job.exit()), " (rank ",
                                              job.failed_rank(), ")");
}

// For an array its elements by state, else why the job waits or ended.
std::string WhyText(const Job& job) {
  if (!job.has_array()) return job.reason();
  const std::string counts = CountsText(job.array());
  return job.reason().empty() ? counts
                              : absl::StrCat(counts, "; ", job.reason());
}

std::string NodeOf(const Rank& rank, const TableView& view) {
  if (!rank.node_name().empty()) return rank.node_name();
  return view.wide ? IdText(rank.node_id()) : ShortId(rank.node_id());
}

std::string RanksTable(const Job& job, const TableView& view) {
  Table table(
      {"RANK", "LOCAL", "NODE", "PID", "STATE", "EXIT", "INCARNATION", "GPUS"});
  const auto number = [](auto n) { return n == 0 ? "-" : absl::StrCat(n); };
  for (const Rank& rank : job.ranks()) {
    table.Add({absl::StrCat(rank.rank()), absl::StrCat(rank.local_rank()),
               NodeOf(rank, view), number(rank.pid()), EnumText(rank.state()),
               rank.has_exit() ? ExitText(rank.exit()) : "-",
               number(rank.incarnation()), absl::StrJoin(rank.gpu_ids(), ",")});
  }
  return table.ToString(view.columns);
}

// The exception of each rank that raised one.
std::string ExceptionsText(const Job& job) {
  std::string text;
  for (const Rank& rank : job.ranks()) {
    const std::string& detail = rank.exit().detail();
    const size_t line = FirstLine(detail).size();
    if (line == detail.size()) continue;
    absl::StrAppend(&text, "\nexception of rank ", rank.rank(), ":\n",
                    Indented(absl::string_view(detail).substr(line + 1)));
  }
  return text;
}

// Fields with default values are left out.
std::string AfterText(const v1::JobSpec& spec) {
  std::vector<std::string> parts;
  for (const v1::Dependency& each : spec.after()) {
    parts.push_back(
        absl::StrCat(IdText(each.job_id()), ":", LowerEnumText(each.kind())));
  }
  return absl::StrJoin(parts, ", ");
}

std::string NodesText(const v1::ScalingConfig& wishes) {
  std::vector<std::string> parts(wishes.selectors().begin(),
                                 wishes.selectors().end());
  for (const v1::Toleration& each : wishes.tolerations()) {
    parts.push_back(
        absl::StrCat("tolerating ", rpc::FromWire(each).ToString()));
  }
  if (!wishes.accelerator_type().empty()) {
    parts.push_back(wishes.accelerator_type());
  }
  if (!wishes.topology_level().empty()) {
    parts.push_back(
        absl::StrCat(wishes.topology_required() ? "" : "preferably ",
                     "the same ", wishes.topology_level()));
  }
  return absl::StrJoin(parts, "; ");
}

std::string ClassesText(const Job& job) {
  std::vector<std::string> parts;
  for (const v1::ClassCount& each : job.failures_by_class()) {
    parts.push_back(
        absl::StrCat(each.count(), " ", LowerEnumText(each.failure_class())));
  }
  return absl::StrJoin(parts, ", ");
}

// The shell's whole environment may be among them.
std::string SecretsText(const v1::Launch& launch) {
  std::map<std::string, std::string> shown(launch.secrets().begin(),
                                           launch.secrets().end());
  const size_t count = shown.size();
  if (count <= kSecretsShown) return SortedText(launch.secrets(), " ");
  std::vector<std::string> names;
  for (const auto& [name, value] : shown) names.push_back(name);
  names.resize(kSecretsShown);
  return absl::StrCat(absl::StrJoin(names, " "), " and ", count - kSecretsShown,
                      " more");
}

void AddLaunch(const v1::Launch& launch, Fields& fields) {
  fields.Add("command", absl::StrJoin(launch.command(), " "));
  fields.Add("environment", SortedText(launch.environment(), " "));
  fields.Add("secrets", SecretsText(launch));
  fields.Add("package", absl::BytesToHexString(launch.package_hash()));
  fields.Add("directory", launch.working_directory());
}

void AddRequest(const Job& job, Fields& fields) {
  const v1::JobSpec& spec = job.spec();
  fields.Add("array", spec.array());
  fields.Add("namespace",
             job.namespace_() == "default" ? "" : job.namespace_());
  fields.Add("submitted by",
             job.submitted_by() == "cluster" ? "" : job.submitted_by());
  fields.Add("labels", SortedText(job.labels(), ", "));
  fields.Add("priority",
             job.priority() == 0 ? "" : absl::StrCat(job.priority()));
  fields.Add("after", AfterText(spec));
  fields.Add("comment", spec.comment());
  AddLaunch(spec.launch(), fields);
  const v1::ScalingConfig& scaling = spec.scaling();
  fields.Add(
      "workers",
      absl::StrCat(job.num_workers(), " x ",
                   ResourcesOf(scaling.resources_per_worker()).ToString(), ", ",
                   EnumText(scaling.placement_strategy())));
}

void AddFailures(const Job& job, Fields& fields) {
  const v1::RunConfig& run = job.spec().run();
  const bool each_rank = run.restart() == v1::RESTART_POLICY_ONE;
  if (each_rank || run.restart() == v1::RESTART_POLICY_NONE) {
    fields.Add("restart", LowerEnumText(run.restart()));
  }
  fields.Add(
      "failures",
      absl::StrCat(job.failures(), " of ",
                   run.max_failures() < 0 ? "any number"
                                          : absl::StrCat(run.max_failures()),
                   each_rank ? " of each rank allowed, " : " allowed, ",
                   job.infra_restarts(),
                   job.infra_restarts() == 1 ? " restart" : " restarts",
                   " after a lost node or keeper"));
  fields.Add("exit", ExitText(job));
  fields.Add("class", job.failure_class() == v1::FAILURE_CLASS_NONE
                          ? ""
                          : LowerEnumText(job.failure_class()));
  for (const std::string& cause : job.causes()) fields.Add("cause", cause);
  fields.Add("by class", ClassesText(job));
}

void AddTimes(const Job& job, Fields& fields) {
  const int64_t limit = job.spec().run().time_limit_us();
  if (limit != 0) {
    fields.Add("time limit", DurationToText(absl::Microseconds(limit)));
  }
  fields.Add("submitted", TimeText(job.submitted_at()));
  const int64_t begin = job.spec().start_at_us();
  if (begin > 0) {
    fields.Add("not before", TimeText(absl::FromUnixMicros(begin)));
  }
  fields.Add("started", TimeText(job.started_at()));
  fields.Add("ended", TimeText(job.ended_at()));
  fields.Add("running time", RunningTime(job));
}

// The preflight's verdict, with its attempt if that is an earlier one.
std::string PreflightText(const Job& job) {
  if (!job.has_preflight()) {
    return job.spec().run().preflight() ? "not yet" : "";
  }
  const v1::PreflightReport& report = job.preflight().report();
  const int attempt = job.preflight().attempt();
  return absl::StrCat(
      LowerEnumText(report.verdict()),
      attempt == job.attempt() ? "" : absl::StrCat(" (attempt ", attempt, ")"),
      report.summary().empty() ? "" : ": ", report.summary());
}

void AddResults(const Job& job, Fields& fields) {
  fields.Add("preflight", PreflightText(job));
  fields.Add("storage", job.spec().run().storage_path());
  for (const std::string& warning : job.warnings()) {
    fields.Add("warning", OneLine(warning));
  }
  if (job.has_checkpoint()) {
    fields.Add("checkpoint", absl::StrCat(job.checkpoint().path(), " (step ",
                                          job.checkpoint().step(), ")"));
  }
  if (!job.metrics_json().empty()) {
    fields.Add("metrics", absl::StrCat(job.metrics_json(), " (of ",
                                       job.metrics_count(), " reports)"));
  }
}

}  // namespace

std::string ShortId(absl::string_view id) {
  std::string text = IdText(id);
  text.erase(std::min(kIdDigitsShown, text.size()),
             2 * JobId::kBytes - kIdDigitsShown);
  return text;
}

std::string JobsTable(const std::vector<Job>& jobs, absl::Time now,
                      const TableView& view) {
  if (!view.wide) {
    Table table({"ID", "NAME", "STATE", "AGE", "RUNNING", "FAILURES", "WHY"});
    const size_t name_bytes = view.columns > 0 && view.columns < kNarrowColumns
                                  ? kNarrowNameBytesMax
                                  : kNameBytesMax;
    for (const Job& job : jobs) {
      table.Add({ShortId(job.job_id()), Cut(job.name(), name_bytes),
                 EnumText(job.state()),
                 RoundedAge(now - rpc::FromWire(job.submitted_at())),
                 job.has_ran() ? RoundedAge(rpc::FromWire(job.ran())) : "-",
                 absl::StrCat(job.failures()), Shortened(WhyText(job))});
    }
    return table.ToString(view.columns);
  }
  Table table({"ID", "NAME", "STATE", "ATTEMPT", "FAILURES", "SUBMITTED",
               "RUNNING", "WHY"});
  for (const Job& job : jobs) {
    table.Add({IdText(job.job_id()), job.name(), EnumText(job.state()),
               absl::StrCat(job.attempt()), absl::StrCat(job.failures()),
               TimeText(job.submitted_at()), RunningTime(job), WhyText(job)});
  }
  return table.ToString();
}

namespace {

// Of lines that overwrite themselves, as progress bars do, what they showed
// last.
std::string LastStates(absl::string_view lines) {
  std::vector<std::string> shown;
  for (absl::string_view line : absl::StrSplit(lines, '\n')) {
    absl::ConsumeSuffix(&line, "\r");
    const size_t begin = line.rfind('\r');
    shown.emplace_back(
        begin == absl::string_view::npos ? line : line.substr(begin + 1));
  }
  return absl::StrJoin(shown, "\n");
}

}  // namespace

std::string LogLines(absl::string_view lines) {
  return Indented(LastStates(lines));
}

std::string TailText(const Job& job) {
  if (job.stderr_tail().empty()) return "";
  const std::string rank =
      job.num_workers() > 1 && job.failed_rank() >= 0
          ? absl::StrCat("rank ", job.failed_rank(), ", which failed first")
          : "the failed rank";
  return absl::StrCat("\nlast lines of stderr of ", rank, ":\n",
                      LogLines(job.stderr_tail()));
}

std::string JobText(const Job& job, const TableView& view) {
  Fields fields;
  fields.Add("id", IdText(job.job_id()));
  fields.Add("name", job.name());
  fields.Add("state", EnumText(job.state()));
  fields.Add("reason", job.reason());
  if (job.has_array()) {
    fields.Add("elements",
               absl::StrCat(job.array().size(), ": ", CountsText(job.array())));
  }
  AddRequest(job, fields);
  fields.Add("nodes", NodesText(job.spec().scaling()));
  fields.Add("attempt", absl::StrCat(job.attempt()));
  fields.Add("epoch", job.epoch() == 0 ? "" : absl::StrCat(job.epoch()));
  AddFailures(job, fields);
  AddTimes(job, fields);
  AddResults(job, fields);
  std::string text = fields.text();
  if (!job.ranks().empty()) {
    absl::StrAppend(&text, "\n", RanksTable(job, view));
  }
  return absl::StrCat(text, ExceptionsText(job), TailText(job));
}

}  // namespace cohort::cli
