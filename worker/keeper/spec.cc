#include "worker/keeper/spec.h"

#include <limits>
#include <set>

#include "worker/keeper/record.h"

namespace cohort::keeper {
namespace {

constexpr char kKind[] = "spec";
constexpr int kSpecVersion = 1;
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
// A day: longer graces are a mistake of units.
constexpr int64_t kGraceMax_ms = 24 * 3600 * 1000;

bool HasNul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

bool IsAbsolute(const std::string& path) {
  return !path.empty() && path[0] == '/' && !HasNul(path);
}

std::string WhatIsWrong(const RankSpec& rank) {
  if (rank.rank < 0) return "the number is negative";
  if (rank.argv.empty() || rank.argv[0].empty()) return "argv is empty";
  if (rank.argv.size() > kArgumentsMax) return "argv has too many words";
  if (rank.env.size() > kArgumentsMax) return "env has too many variables";
  for (const std::string& word : rank.argv) {
    if (HasNul(word)) return "an argument holds a NUL byte";
  }
  for (const std::string& variable : rank.env) {
    if (HasNul(variable)) return "a variable holds a NUL byte";
    const size_t equals = variable.find('=');
    if (equals == std::string::npos || equals == 0) {
      return "the variable \"" + variable + "\" is not NAME=VALUE";
    }
  }
  if (!IsAbsolute(rank.cwd)) {
    return "cwd \"" + rank.cwd + "\" is not an absolute path";
  }
  for (size_t i = 0; i < rank.cpus.size(); ++i) {
    if (rank.cpus[i] < 0 || rank.cpus[i] >= kCpusMax ||
        (i > 0 && rank.cpus[i] <= rank.cpus[i - 1])) {
      return "cpus are not ascending numbers below " + std::to_string(kCpusMax);
    }
  }
  return "";
}

void AddRank(const RankSpec& rank, RecordWriter& out) {
  out.Add("rank", rank.rank).Add("cwd", rank.cwd);
  for (const std::string& word : rank.argv) out.Add("arg", word);
  for (const std::string& variable : rank.env) out.Add("env", variable);
  for (const int cpu : rank.cpus) out.Add("cpu", cpu);
}

RankSpec ReadRank(RecordReader& in) {
  RankSpec rank;
  rank.rank =
      static_cast<int>(in.Number("rank", 0, std::numeric_limits<int>::max()));
  rank.cwd = in.Text("cwd");
  while (in.NextIs("arg")) rank.argv.push_back(in.Text("arg"));
  while (in.NextIs("env")) rank.env.push_back(in.Text("env"));
  while (in.NextIs("cpu")) {
    rank.cpus.push_back(static_cast<int>(in.Number("cpu", 0, kCpusMax - 1)));
  }
  return rank;
}

}  // namespace

std::string CgroupName(const KeeperSpec& spec) {
  // The node's: RUNTIME/ATTEMPT.
  const size_t end = spec.runtime_dir.rfind('/');
  const size_t slash = end == 0 || end == std::string::npos
                           ? std::string::npos
                           : spec.runtime_dir.rfind('/', end - 1);
  return "cohort-" + spec.attempt + "-" +
         spec.runtime_dir.substr(slash + 1, end - slash - 1);
}

bool IsAttemptId(const std::string& text) {
  return !text.empty() && text.size() <= 64 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string Validate(const KeeperSpec& spec) {
  if (!IsAttemptId(spec.attempt)) {
    return "attempt \"" + spec.attempt +
           "\" is not 1 to 64 lower-case hex digits";
  }
  if (!IsAbsolute(spec.runtime_dir)) {
    return "runtime_dir \"" + spec.runtime_dir + "\" is not an absolute path";
  }
  if (!IsAbsolute(spec.log_dir)) {
    return "log_dir \"" + spec.log_dir + "\" is not an absolute path";
  }
  if (!spec.cgroup_parent.empty() && !IsAbsolute(spec.cgroup_parent)) {
    return "cgroup_parent \"" + spec.cgroup_parent +
           "\" is not an absolute path";
  }
  if (spec.grace_ms < 0 || spec.grace_ms > kGraceMax_ms) {
    return "grace_ms is not within a day";
  }
  if (spec.time_limit_ms && *spec.time_limit_ms < 1) {
    return "time_limit_ms is not positive";
  }
  if (spec.ranks.empty() || spec.ranks.size() > kRanksMax) {
    return "it has " + std::to_string(spec.ranks.size()) + " ranks; 1 to " +
           std::to_string(kRanksMax) + " can run";
  }
  std::set<int> seen;
  for (const RankSpec& rank : spec.ranks) {
    std::string wrong = WhatIsWrong(rank);
    if (wrong.empty() && !seen.insert(rank.rank).second) {
      wrong = "the number is there twice";
    }
    if (!wrong.empty()) {
      return "rank " + std::to_string(rank.rank) + ": " + wrong;
    }
  }
  return "";
}

std::string EncodeSpec(const KeeperSpec& spec) {
  RecordWriter out(kKind, kSpecVersion);
  out.Add("attempt", spec.attempt)
      .Add("runtime_dir", spec.runtime_dir)
      .Add("log_dir", spec.log_dir)
      .Add("grace_ms", spec.grace_ms);
  if (spec.time_limit_ms) out.Add("time_limit_ms", *spec.time_limit_ms);
  out.Add("cgroup_parent", spec.cgroup_parent);
  for (const RankSpec& rank : spec.ranks) AddRank(rank, out);
  return out.Finish();
}

std::optional<KeeperSpec> ParseSpec(const std::string& bytes,
                                    std::string* error) {
  RecordReader in(bytes, kKind, kSpecVersion);
  KeeperSpec spec;
  spec.attempt = in.Text("attempt");
  spec.runtime_dir = in.Text("runtime_dir");
  spec.log_dir = in.Text("log_dir");
  spec.grace_ms = in.Number("grace_ms", 0, kGraceMax_ms);
  if (in.NextIs("time_limit_ms")) {
    spec.time_limit_ms = in.Number("time_limit_ms", 1, kInt64Max);
  }
  spec.cgroup_parent = in.Text("cgroup_parent");
  while (in.NextIs("rank")) spec.ranks.push_back(ReadRank(in));
  if (in.AtEnd()) in.Fail(Validate(spec));
  if (in.ok()) return spec;
  *error = in.error();
  return std::nullopt;
}

}  // namespace cohort::keeper
