#include "common/job_limits.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/array_spec.h"
#include "common/label_selector.h"
#include "common/printable_text.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort {
namespace {

constexpr size_t kRequestIdBytesMax = 128;
constexpr int kWorkersMax = 10'000;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kPathBytesMax = 1024;
constexpr size_t kArgumentsMax = 4'096;
constexpr size_t kEnvironmentMax = 4'096;
constexpr size_t kArgumentBytesMax = 128 << 10;
constexpr size_t kCommandBytesMax = 1 << 20;
constexpr int kFailuresMax = 1'000'000;
constexpr absl::Duration kTimeLimitMax = absl::Hours(24 * 365);
constexpr absl::Duration kStartsInMax = absl::Hours(24 * 365);
constexpr size_t kNamespaceBytesMax = 64;
// As node labels.
constexpr size_t kJobLabelsMax = 64;
constexpr size_t kLabelKeyBytesMax = LabelSelector::kKeyBytesMax;
constexpr size_t kLabelValueBytesMax = LabelSelector::kValueBytesMax;
constexpr int kPriorityMax = 1'000;
constexpr size_t kAfterMax = 100;

constexpr size_t kSelectorBytesMax = 16 << 10;
constexpr size_t kLevelBytesMax = LabelSelector::kKeyBytesMax;
constexpr size_t kAcceleratorBytesMax = 64;

bool IsName(absl::string_view text, size_t bytes_max) {
  return text.size() <= bytes_max && IsNameText(text);
}

bool FitsExec(absl::string_view text) {
  return !absl::StrContains(text, '\0') && text.size() < kArgumentBytesMax;
}

bool IsVariableName(absl::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax ||
      absl::ascii_isdigit(static_cast<unsigned char>(name.front()))) {
    return false;
  }
  for (const char c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_') {
      return false;
    }
  }
  return true;
}

// The contract of worker::RankEnvironment, whose test compares.
bool IsSetByWorker(absl::string_view name) {
  static constexpr absl::string_view kNames[] = {
      "RANK",
      "ROLE_RANK",
      "WORLD_SIZE",
      "ROLE_WORLD_SIZE",
      "LOCAL_RANK",
      "LOCAL_WORLD_SIZE",
      "GROUP_RANK",
      "GROUP_WORLD_SIZE",
      "ROLE_NAME",
      "MASTER_ADDR",
      "MASTER_PORT",
      "TORCHELASTIC_RUN_ID",
      "TORCHELASTIC_MAX_RESTARTS",
      "TORCHELASTIC_RESTART_COUNT",
      "TORCHELASTIC_USE_AGENT_STORE",
      "TORCHELASTIC_ERROR_FILE",
      "TORCHELASTIC_SIGNALS_TO_HANDLE",
      "CUDA_VISIBLE_DEVICES",
      "PWD",
      "COHORT_ADDRESS",
      "COHORT_CREDENTIAL_FILE",
      "COHORT_WORKER_SOCKET",
      "COHORT_STORAGE_DIR",
      "COHORT_JOB_ID",
      "COHORT_JOB_NAME",
      "COHORT_ATTEMPT_ID",
      "COHORT_ATTEMPT",
      "COHORT_EPOCH",
      "COHORT_PACKAGE",
      "COHORT_SLOT",
      "COHORT_INCARNATION",
      "COHORT_GPU_IDS",
      "COHORT_KEEPER_PROCESS",
      "COHORT_KEEPER_PLACE",
      "COHORT_ARRAY_ID",
      "COHORT_ARRAY_INDEX",
  };
  return std::find(std::begin(kNames), std::end(kNames), name) !=
         std::end(kNames);
}

absl::Status CheckArguments(const std::vector<std::string>& command) {
  if (command.empty() || command.front().empty()) {
    return absl::InvalidArgumentError(
        "the command is empty: name the program to run");
  }
  if (command.size() > kArgumentsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the command has ", command.size(), " arguments, at most ",
                     kArgumentsMax, " are possible"));
  }
  for (const std::string& argument : command) {
    if (FitsExec(argument)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "the argument ", Quoted(argument), " has a NUL byte or more than ",
        kArgumentBytesMax - 1, " bytes: pass long input as a file"));
  }
  return absl::OkStatus();
}

absl::Status CheckEnvironment(
    const std::map<std::string, std::string>& environment) {
  if (environment.size() > kEnvironmentMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment has ", environment.size(),
                     " variables, at most ", kEnvironmentMax, " are possible"));
  }
  for (const auto& [name, value] : environment) {
    if (!IsVariableName(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the environment variable ", Quoted(name),
                       " is not named with letters, digits and _, not "
                       "beginning with a digit"));
    }
    if (IsSetByWorker(name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the environment variable ", name,
                       " is set by the worker for each rank: leave it out"));
    }
    if (!FitsExec(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the value of the environment variable ", name,
          " has a NUL byte or more than ", kArgumentBytesMax - 1, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBetween(absl::string_view what, absl::Duration value,
                          absl::Duration least, absl::Duration most) {
  if (least <= value && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", what, " is ", absl::FormatDuration(value), ", ",
                   absl::FormatDuration(least), " to ",
                   absl::FormatDuration(most), " are possible"));
}

// `what` is of a directory of the workers, `otherwise` what to give in place of
// one that is not absolute.
absl::Status CheckPath(absl::string_view what, const std::string& path,
                       absl::string_view otherwise) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", what, " ", Quoted(path), " ", why));
  };
  if (path.empty()) return absl::OkStatus();
  if (!IsPrintable(path)) {
    return refuse("has a control character: rename the directory");
  }
  if (path.size() > kPathBytesMax) {
    return refuse(absl::StrCat("... has ", path.size(), " bytes, at most ",
                               kPathBytesMax, " are possible"));
  }
  if (!absl::StartsWith(path, "/")) {
    return refuse(absl::StrCat("is not absolute: give ", otherwise));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRequestId(const std::string& id) {
  if (!id.empty() && id.size() <= kRequestIdBytesMax && IsPrintableUtf8(id)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the request id ", Quoted(id), " is not 1 to ", kRequestIdBytesMax,
      " bytes of printable UTF-8: make a new one for each request and keep it "
      "for its retries"));
}

absl::Status CheckJobName(const std::string& name) {
  if (!IsUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name ", Quoted(name),
                     " is not UTF-8: names go into messages and JSON"));
  }
  if (name.empty() || IsName(name, kNameBytesMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the name ", Quoted(name), " is not one line of at most ",
                   kNameBytesMax, " bytes, without spaces at its ends"));
}

absl::Status CheckStoragePath(const std::string& path) {
  return CheckPath("storage path", path,
                   "the full path of a directory that all workers see, or "
                   "none");
}

absl::Status CheckWorkingDirectory(const std::string& path, bool has_package) {
  if (!path.empty() && has_package) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ranks run in what --working-dir or --file sends, or in the directory ",
        Quoted(path), " of --cwd",
        ", not in both: send files along, or name a "
        "directory that all workers have"));
  }
  return CheckPath("working directory", path,
                   "the full path of a directory that all workers have");
}

absl::Status CheckCommand(const std::vector<std::string>& command,
                          const std::map<std::string, std::string>& environment,
                          const std::map<std::string, std::string>& secrets) {
  COHORT_RETURN_IF_ERROR(CheckArguments(command));
  COHORT_RETURN_IF_ERROR(CheckEnvironment(environment));
  COHORT_RETURN_IF_ERROR(CheckEnvironment(secrets));
  size_t bytes = 0;
  for (const auto& [name, value] : secrets) {
    bytes += name.size() + value.size();
    if (!environment.contains(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, " is in the environment and a secret: it can have one value"));
  }
  for (const std::string& argument : command) bytes += argument.size();
  for (const auto& [name, value] : environment) {
    bytes += name.size() + value.size();
  }
  if (bytes <= kCommandBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("command and environment have ", bytes, " bytes, at most ",
                   kCommandBytesMax, " are possible: pass input as a file"));
}

absl::Status CheckNumWorkers(int num_workers) {
  if (num_workers >= 1 && num_workers <= kWorkersMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "num_workers is ", num_workers, ", it can be 1 to ", kWorkersMax));
}

absl::Status CheckResourcesPerWorker(const ResourceSet& resources) {
  COHORT_RETURN_IF_ERROR(resources.Validate());
  const Amount gpu = resources.Get(kGpu);
  if (gpu <= Amount::FromUnits(1) ||
      gpu.ten_thousandths() % Amount::kScale == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("GPU ", gpu.ToString(),
                   " per worker: above 1 only whole GPUs can be given"));
}

absl::Status CheckNamespace(const std::string& name_space) {
  if (IsName(name_space, kNamespaceBytesMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the namespace ", Quoted(name_space), " is not 1 to ", kNamespaceBytesMax,
      " printable bytes without spaces at its ends"));
}

absl::Status CheckLabels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kJobLabelsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", labels.size(), " labels, at most ",
                     kJobLabelsMax, " are possible"));
  }
  for (const auto& [key, value] : labels) {
    if (!IsName(key, kLabelKeyBytesMax)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the label ", Quoted(key), " is not named with 1 to ",
          kLabelKeyBytesMax, " printable bytes without spaces at the ends"));
    }
    if (value.size() > kLabelValueBytesMax || !IsPrintableUtf8(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the value ", Quoted(value), " of the label ", Quoted(key),
          " is not one line of at most ", kLabelValueBytesMax, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPriority(int priority) {
  if (std::abs(int64_t{priority}) <= kPriorityMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the priority is ", priority,
                                                 ", it can be -", kPriorityMax,
                                                 " to ", kPriorityMax));
}

absl::Status CheckArray(const std::string& array) {
  if (array.empty()) return absl::OkStatus();
  return Annotate(ArraySpec::Parse(array).status(),
                  absl::StrCat("the array ", Quoted(array)));
}

absl::Status CheckAfter(const std::vector<JobId>& jobs) {
  if (jobs.size() > kAfterMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it is to start after ", jobs.size(), " jobs, at most ", kAfterMax,
        " are possible: name an array, or a job that waits for them"));
  }
  std::set<JobId> seen;
  for (const JobId& job : jobs) {
    if (job.IsNil()) {
      return absl::InvalidArgumentError("the job to start after has no id");
    }
    if (seen.insert(job).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "it is to start after job ", job.ToText(), " twice: name it once"));
  }
  return absl::OkStatus();
}

absl::Status CheckMaxFailures(int max_failures) {
  if (max_failures >= -1 && max_failures <= kFailuresMax) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "max_failures is ", max_failures,
      ", it can be -1 (no limit), 0, or more up to ", kFailuresMax));
}

absl::Status CheckTimeLimit(absl::Duration time_limit) {
  if (time_limit == absl::InfiniteDuration()) return absl::OkStatus();
  return CheckBetween("time limit", time_limit, absl::Milliseconds(1),
                      kTimeLimitMax);
}

absl::Status CheckStartsIn(absl::Duration left) {
  if (left <= kStartsInMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the job is to start in ", absl::FormatDuration(left), ", at most ",
      absl::FormatDuration(kStartsInMax), " (365 days) are possible"));
}

absl::Status CheckGrace(absl::Duration grace) {
  return CheckBetween("grace", grace, absl::ZeroDuration(), absl::Hours(1));
}

absl::Status CheckRetryDelay(absl::Duration retry_delay) {
  return CheckBetween("retry delay", retry_delay, absl::ZeroDuration(),
                      absl::Hours(1));
}

absl::Status CheckSelectors(const std::vector<std::string>& selectors) {
  size_t bytes = 0;
  for (const std::string& selector : selectors) bytes += selector.size();
  if (bytes > kSelectorBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the selectors have ", bytes, " bytes, at most ",
                     kSelectorBytesMax, " are possible"));
  }
  for (const std::string& selector : selectors) {
    if (!absl::StripAsciiWhitespace(selector).empty()) continue;
    return absl::InvalidArgumentError(
        "a selector is blank: write one as rack=r1, or leave it out");
  }
  return LabelSelector::ParseAll(selectors).status();
}

absl::Status CheckTolerations(const std::vector<Toleration>& tolerations) {
  if (tolerations.size() > kTolerationsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("there are ", tolerations.size(), " tolerations, at most ",
                     kTolerationsMax, " are possible"));
  }
  for (const Toleration& toleration : tolerations) {
    const std::string& key = toleration.key;
    const std::string value = toleration.value.value_or("");
    if (key.empty() || key.size() > Taint::kKeyBytesMax ||
        value.size() > Taint::kValueBytesMax || !IsPrintableUtf8(key) ||
        !IsPrintableUtf8(value)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the toleration ", Quoted(key), "=", Quoted(value),
          " is not a key of 1 to ", Taint::kKeyBytesMax,
          " printable bytes and a value of at most ", Taint::kValueBytesMax));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAcceleratorType(const std::string& type) {
  if (type.empty() || IsName(type, kAcceleratorBytesMax)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the accelerator type ", Quoted(type), " is not ", kAcceleratorBytesMax,
      " printable bytes or fewer, without spaces at the ends: `cohort nodes` "
      "shows the models"));
}

absl::Status CheckTopologyLevel(const std::string& level) {
  if (level.find_first_of("=,!()\"") != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the level ", Quoted(level),
        " is an expression: give a label's key alone, as rack, and what its "
        "value is to be as a selector"));
  }
  if (level.empty() || IsName(level, kLevelBytesMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the level ", Quoted(level),
                   " is neither \"host\" nor a label of at "
                   "most ",
                   kLevelBytesMax, " printable bytes"));
}

}  // namespace cohort
