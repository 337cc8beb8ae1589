#include "head/job_spec.h"

#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/resources.h"
#include "common/status_macros.h"

namespace cohort::head {
namespace {

constexpr int kWorkersMax = 10'000;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kNamespaceBytesMax = 64;
constexpr size_t kPathBytesMax = 1024;
constexpr size_t kArgumentsMax = 4'096;
constexpr size_t kEnvironmentMax = 4'096;
// Linux refuses one argument or variable of 128 KiB (MAX_ARG_STRLEN).
constexpr size_t kArgumentBytesMax = 128 << 10;
// It goes with every message about the attempt and into the job's row.
constexpr size_t kCommandBytesMax = 1 << 20;
constexpr size_t kHashBytes = 32;
constexpr int kFailuresMax = 1'000'000;

// Names and paths go into messages, tables and directories.
bool IsPrintable(const std::string& text) {
  for (const char c : text) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) return false;
  }
  return true;
}

bool HasNul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 64)), "\"");
}

absl::Status ValidateNames(const JobSpec& spec, const std::string& name_space) {
  if (spec.name.size() > kNameBytesMax || !IsPrintable(spec.name)) {
    return absl::InvalidArgumentError(absl::StrCat("the name ",
                                                   Quoted(spec.name),
                                                   " is not one line of at "
                                                   "most ",
                                                   kNameBytesMax, " bytes"));
  }
  if (name_space.empty() || name_space.size() > kNamespaceBytesMax ||
      !IsPrintable(name_space)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the namespace ", Quoted(name_space), " is not 1 to ",
                     kNamespaceBytesMax, " printable bytes"));
  }
  if (!spec.storage_path.empty() &&
      (!absl::StartsWith(spec.storage_path, "/") ||
       spec.storage_path.size() > kPathBytesMax ||
       !IsPrintable(spec.storage_path))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the storage path ", Quoted(spec.storage_path),
        " is not absolute: give the full path of a directory that all workers "
        "see, at most ",
        kPathBytesMax, " bytes, or none"));
  }
  if (!spec.package_hash.empty() && spec.package_hash.size() != kHashBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a package hash has ", kHashBytes, " bytes, this one ",
                     spec.package_hash.size()));
  }
  return absl::OkStatus();
}

absl::Status ValidateCommand(const JobSpec& spec) {
  if (spec.command.empty() || spec.command.front().empty()) {
    return absl::InvalidArgumentError(
        "the command is empty: name the program to run");
  }
  if (spec.command.size() > kArgumentsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the command has ", spec.command.size(),
                     " arguments, at most ", kArgumentsMax, " are possible"));
  }
  size_t bytes = 0;
  for (const std::string& argument : spec.command) {
    if (HasNul(argument) || argument.size() >= kArgumentBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the argument ", Quoted(argument), " has a NUL byte or more than ",
          kArgumentBytesMax - 1, " bytes: pass long input as a file"));
    }
    bytes += argument.size();
  }
  for (const auto& [name, value] : spec.environment) bytes += value.size();
  if (bytes > kCommandBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("command and environment have ", bytes, " bytes, at most ",
                     kCommandBytesMax, " are possible: pass input as a file"));
  }
  return absl::OkStatus();
}

absl::Status ValidateEnvironment(const JobSpec& spec) {
  if (spec.environment.size() > kEnvironmentMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the environment has ", spec.environment.size(),
                     " variables, at most ", kEnvironmentMax, " are possible"));
  }
  for (const auto& [name, value] : spec.environment) {
    bool good = !name.empty() && name.size() <= kNameBytesMax &&
                !absl::ascii_isdigit(static_cast<unsigned char>(name.front()));
    for (const char c : name) {
      good = good &&
             (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_');
    }
    if (!good) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the environment variable ", Quoted(name),
          " is not named with letters, digits and _, not beginning with a "
          "digit"));
    }
    if (HasNul(value) || value.size() >= kArgumentBytesMax) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the value of the environment variable ", name,
          " has a NUL byte or more than ", kArgumentBytesMax - 1, " bytes"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateScaling(const JobSpec& spec) {
  if (spec.num_workers < 1 || spec.num_workers > kWorkersMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_workers is ", spec.num_workers, ", it can be 1 to ", kWorkersMax));
  }
  if (spec.strategy < PlacementStrategy::kPack ||
      spec.strategy > PlacementStrategy::kStrictSpread) {
    return absl::InvalidArgumentError(absl::StrCat(
        "placement strategy ", static_cast<int>(spec.strategy),
        " is not known: PACK, SPREAD, STRICT_PACK and STRICT_SPREAD are"));
  }
  COHORT_RETURN_IF_ERROR(spec.resources_per_worker.Validate());
  const Amount gpu = spec.resources_per_worker.Get(kGpu);
  if (gpu > Amount::FromUnits(1) &&
      gpu.ten_thousandths() % Amount::kScale != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("GPU ", gpu.ToString(),
                     " per worker: above 1 only whole GPUs can be given"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateJobSpec(const JobSpec& spec,
                             const std::string& name_space) {
  COHORT_RETURN_IF_ERROR(ValidateNames(spec, name_space));
  COHORT_RETURN_IF_ERROR(ValidateCommand(spec));
  COHORT_RETURN_IF_ERROR(ValidateEnvironment(spec));
  COHORT_RETURN_IF_ERROR(ValidateScaling(spec));
  if (spec.max_failures < -1 || spec.max_failures > kFailuresMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "max_failures is ", spec.max_failures,
        ", it can be -1 (no limit), 0, or more up to ", kFailuresMax));
  }
  if (spec.num_to_keep < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "num_to_keep is ", spec.num_to_keep, ", it can be 0 (all) or more"));
  }
  return absl::OkStatus();
}

}  // namespace cohort::head
