#include "worker/keeper/spec.h"

#include <limits>

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

constexpr char kKind[] = "spec";
constexpr int kSpecVersion = 1;
constexpr int kSlotMax = std::numeric_limits<int>::max();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
// A day: longer graces are a mistake of units.
constexpr int64_t kGraceMax_ms = 24 * 3600 * 1000;
// The last one means "none" to the kernel.
constexpr int64_t kUserMax = int64_t{std::numeric_limits<uint32_t>::max()} - 1;

bool HasNul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

bool IsAbsolute(const std::string& path) {
  return !path.empty() && path[0] == '/' && !HasNul(path);
}

bool IsMadeOf(const std::string& text, const char* characters) {
  return !text.empty() && text.size() <= 64 &&
         text.find_first_not_of(characters) == std::string::npos;
}

std::string WhatIsWrong(const ProcessSpec& spec) {
  if (spec.slot < 0) return "the slot is negative";
  if (spec.incarnation > static_cast<uint64_t>(kInt64Max)) {
    return "the incarnation is above 2^63 - 1";
  }
  if (spec.argv.empty() || spec.argv[0].empty()) return "argv is empty";
  if (spec.argv.size() > kArgumentsMax) return "argv has too many words";
  if (spec.env.size() > kArgumentsMax) return "env has too many variables";
  for (const std::string& word : spec.argv) {
    if (HasNul(word)) return "an argument holds a NUL byte";
  }
  for (const std::string& variable : spec.env) {
    if (HasNul(variable)) return "a variable holds a NUL byte";
    const size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0) {
      return "the variable \"" + variable + "\" is not NAME=VALUE";
    }
  }
  if (!IsAbsolute(spec.cwd)) {
    return "cwd \"" + spec.cwd + "\" is not an absolute path";
  }
  for (size_t i = 0; i < spec.cpus.size(); ++i) {
    if (spec.cpus[i] < 0 || spec.cpus[i] >= kCpusMax ||
        (i > 0 && spec.cpus[i] <= spec.cpus[i - 1])) {
      return "cpus are not ascending numbers below " + std::to_string(kCpusMax);
    }
  }
  if (spec.memory_bytes < 0) return "memory_bytes is negative";
  if (spec.cpu_weight < 0 || spec.cpu_weight > kCpuWeightMax) {
    return "cpu_weight is not within " + std::to_string(kCpuWeightMax);
  }
  if (!IsAbsolute(spec.log_dir)) {
    return "log_dir \"" + spec.log_dir + "\" is not an absolute path";
  }
  if (spec.user && spec.user->uid == 0) return "the user is root";
  if (spec.grace_ms < 0 || spec.grace_ms > kGraceMax_ms) {
    return "grace_ms is not within a day";
  }
  if (spec.time_limit_ms && *spec.time_limit_ms < 1) {
    return "time_limit_ms is not positive";
  }
  return "";
}

}  // namespace

std::string ProcessKey::ToString() const {
  return attempt + "." + std::to_string(slot) + "." +
         std::to_string(incarnation);
}

std::optional<ProcessKey> ParseProcessKey(const std::string& text) {
  const size_t slot_at = text.find('.');
  const size_t incarnation_at = text.rfind('.');
  if (slot_at == incarnation_at) return std::nullopt;  // or there is no dot
  const std::optional<int64_t> slot =
      ParseDecimal(text.substr(slot_at + 1, incarnation_at - slot_at - 1));
  const std::optional<int64_t> incarnation =
      ParseDecimal(text.substr(incarnation_at + 1));
  ProcessKey key;
  key.attempt = text.substr(0, slot_at);
  if (!IsAttemptId(key.attempt) || slot.value_or(-1) < 0 || *slot > kSlotMax ||
      incarnation.value_or(-1) < 0) {
    return std::nullopt;
  }
  key.slot = static_cast<int>(*slot);
  key.incarnation = static_cast<uint64_t>(*incarnation);
  return key;
}

std::string CgroupName(const std::string& place) {
  const size_t slash = place.rfind('/');
  const std::string node = place.substr(0, slash);
  return "cohort-" + place.substr(slash + 1) + "-" +
         node.substr(node.rfind('/') + 1);
}

std::string CgroupName(const ProcessKey& process) {
  return "cohort-" + process.ToString();
}

bool IsAttemptId(const std::string& text) {
  return IsMadeOf(text, "0123456789abcdef");
}

bool IsKeeperId(const std::string& text) {
  return IsMadeOf(text, "0123456789abcdefghijklmnopqrstuvwxyz-");
}

std::string Validate(const ProcessSpec& spec) {
  if (!IsAttemptId(spec.attempt)) {
    return "attempt \"" + spec.attempt +
           "\" is not 1 to 64 lower-case hex digits";
  }
  const std::string wrong = WhatIsWrong(spec);
  return wrong.empty() ? "" : "process " + spec.key().ToString() + ": " + wrong;
}

std::string EncodeSpec(const ProcessSpec& spec) {
  RecordWriter out(kKind, kSpecVersion);
  out.Add("process", spec.key().ToString())
      .Add("log_dir", spec.log_dir)
      .Add("grace_ms", spec.grace_ms);
  if (spec.time_limit_ms) out.Add("time_limit_ms", *spec.time_limit_ms);
  out.Add("cwd", spec.cwd);
  for (const std::string& word : spec.argv) out.Add("arg", word);
  for (const std::string& variable : spec.env) out.Add("env", variable);
  for (const int cpu : spec.cpus) out.Add("cpu", cpu);
  if (spec.memory_bytes != 0) out.Add("memory_bytes", spec.memory_bytes);
  if (spec.cpu_weight != 0) out.Add("cpu_weight", spec.cpu_weight);
  if (spec.user) {
    out.Add("uid", int64_t{spec.user->uid}).Add("gid", int64_t{spec.user->gid});
    for (const uint32_t group : spec.user->groups) {
      out.Add("group", int64_t{group});
    }
  }
  return out.Finish();
}

std::optional<ProcessSpec> ParseSpec(const std::string& bytes,
                                     std::string* error) {
  RecordReader in(bytes, kKind, kSpecVersion);
  ProcessSpec spec;
  const ProcessKey key =
      ParseProcessKey(in.Text("process")).value_or(ProcessKey());
  spec.attempt = key.attempt;
  spec.slot = key.slot;
  spec.incarnation = key.incarnation;
  spec.log_dir = in.Text("log_dir");
  spec.grace_ms = in.Number("grace_ms", 0, kGraceMax_ms);
  if (in.NextIs("time_limit_ms")) {
    spec.time_limit_ms = in.Number("time_limit_ms", 1, kInt64Max);
  }
  spec.cwd = in.Text("cwd");
  while (in.NextIs("arg")) spec.argv.push_back(in.Text("arg"));
  while (in.NextIs("env")) spec.env.push_back(in.Text("env"));
  while (in.NextIs("cpu")) {
    spec.cpus.push_back(static_cast<int>(in.Number("cpu", 0, kCpusMax - 1)));
  }
  if (in.NextIs("memory_bytes")) {
    spec.memory_bytes = in.Number("memory_bytes", 0, kInt64Max);
  }
  if (in.NextIs("cpu_weight")) {
    spec.cpu_weight =
        static_cast<int>(in.Number("cpu_weight", 0, kCpuWeightMax));
  }
  if (in.NextIs("uid")) {
    const auto id = [&in](const char* name, int64_t min) {
      return static_cast<uint32_t>(in.Number(name, min, kUserMax));
    };
    spec.user = {.uid = id("uid", 1), .gid = id("gid", 0)};
    while (in.NextIs("group")) spec.user->groups.push_back(id("group", 0));
  }
  if (in.AtEnd()) in.Fail(Validate(spec));
  if (in.ok()) return spec;
  *error = in.error();
  return std::nullopt;
}

}  // namespace cohort::keeper
