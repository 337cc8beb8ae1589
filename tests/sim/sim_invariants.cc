#include "tests/sim/sim_invariants.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/array_spec.h"
#include "common/label_selector.h"
#include "common/random.h"
#include "common/taint.h"
#include "head/state/failure_class.h"
#include "head/state/job_phases.h"
#include "head/state/job_spec.h"
#include "head/state/rows.h"
#include "head/store/records_codec.h"
#include "head/testing/no_links.h"
#include "head/testing/observed_places.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort::sim {
namespace {

using head::AttemptRecord;
using head::AttemptState;
using head::ClusterState;
using head::JobRecord;
using head::JobState;

// That follow at once from what a person or a node of the simulation says: a
// node has a dozen attempts, of which each may end and begin again.
constexpr size_t kRowsOfOneWord = 100;

std::string CheckJob(const JobRecord& job) {
  const auto last = job.row.checkpoints().rbegin();
  if (last != job.row.checkpoints().rend() && last->epoch() > job.row.epoch()) {
    return absl::StrCat("CK-1: a checkpoint of epoch ", last->epoch(),
                        " in a job of epoch ", job.row.epoch());
  }
  if (job.spec->run().max_failures() >= 0 && !head::RunsOneByOne(job) &&
      job.row.failures() > job.spec->run().max_failures() + 1) {
    return absl::StrCat("JB-2: ", job.row.failures(), " failures charged of ",
                        job.spec->run().max_failures());
  }
  return "";
}

// PL-1: every rank of the gang once.  JB-2: slots keep to their budgets.
std::string CheckGang(const ClusterState& state, const AttemptRecord& attempt) {
  const JobRecord* job = state.jobs().Find(attempt.job);
  if (job == nullptr) return "PL-1: an attempt without a job";
  const bool one_by_one = head::RunsOneByOne(*job);
  const size_t want = static_cast<size_t>(
      job->row.num_workers() > 0 ? job->row.num_workers()
                                 : job->spec->scaling().num_workers());
  size_t placed = 0;
  std::set<uint64_t> incarnations;
  for (size_t slot = 0; slot < attempt.processes.size(); ++slot) {
    const head::Process& process = attempt.processes[slot];
    if (process.slot != static_cast<int>(slot) ||
        (process.incarnation != 0 &&
         !incarnations.insert(process.incarnation).second) ||
        process.incarnation >
            std::max(job->row.incarnations(), uint64_t{want})) {
      return absl::StrCat("PR-1: attempt ", attempt.id.ToHex(), " has slot ",
                          process.slot, " with incarnation ",
                          process.incarnation, " as number ", slot);
    }
    const int most = job->spec->run().max_failures();
    if (one_by_one && most >= 0 && process.failures > most + 1) {
      return absl::StrCat("JB-2: slot ", slot, " failed ", process.failures,
                          " times of ", most);
    }
    placed += !process.waits();
  }
  if (one_by_one || (placed == want && attempt.processes.size() == want)) {
    return "";
  }
  return absl::StrCat("PL-1: attempt ", attempt.id.ToHex(), " holds ", placed,
                      " ranks of a gang of ", want);
}

// The value of a level of a node; "host" is the node itself.
std::string LevelOf(const head::NodeRecord& node, const std::string& level) {
  if (level == "host") return node.id.ToHex();
  const auto label = node.node.labels().find(level);
  return label == node.node.labels().end() ? "" : label->second;
}

std::string WhyNotAllowed(const head::JobSpec& spec,
                          const head::NodeRecord& node) {
  const auto selector = LabelSelector::ParseAll(head::SelectorsOf(spec));
  std::map<std::string, std::string> labels(node.node.labels().begin(),
                                            node.node.labels().end());
  labels["host"] = node.node.name();
  if (!selector.ok() || !selector->Matches(labels)) return "its selectors";
  std::vector<Taint> taints;
  for (const v1::Taint& taint : node.node.taints()) {
    taints.push_back(rpc::FromWire(taint));
  }
  if (FirstUntolerated(taints, head::TolerationsOf(spec)) != nullptr) {
    return "a taint";
  }
  for (const head::Device& device : node.node.devices()) {
    if (!spec.scaling().accelerator_type().empty() &&
        device.model() != spec.scaling().accelerator_type()) {
      return "its accelerator type";
    }
  }
  return "";
}

// PL-4: every rank lies where its job may be.
std::string CheckWhere(const ClusterState& state,
                       const AttemptRecord& attempt) {
  const head::JobSpec& spec = *state.jobs().Find(attempt.job)->spec;
  std::set<std::string> levels;
  for (const head::Process& process : attempt.processes) {
    const head::NodeRecord* node = state.nodes().Find(process.node);
    if (node == nullptr || process.over()) continue;
    const std::string why = WhyNotAllowed(spec, *node);
    if (!why.empty()) {
      return absl::StrCat("PL-4: attempt ", attempt.id.ToHex(), " is on ",
                          node->node.name(), " in spite of ", why);
    }
    levels.insert(LevelOf(*node, spec.scaling().topology_level()));
  }
  if (spec.scaling().topology_required() &&
      !spec.scaling().topology_level().empty() &&
      (levels.size() > 1 || levels.contains(""))) {
    return absl::StrCat("PL-4: attempt ", attempt.id.ToHex(),
                        " is not within one ", spec.scaling().topology_level());
  }
  return "";
}

bool HasAttempt(const JobRecord& job) {
  return job.row.state() == v1::JOB_STATE_STARTING ||
         job.row.state() == v1::JOB_STATE_RUNNING ||
         job.row.state() == v1::JOB_STATE_STOPPING;
}

// Of a job with an attempt: nothing kept it from having one.
std::string CheckEligible(const ClusterState& state, const JobRecord& job) {
  if (job.row.held()) {
    return absl::StrCat("EL-1: job ", job.id.ToText(), " is held and runs");
  }
  for (const head::Dependency& dependency : job.spec->after()) {
    if (!IsMet(state, dependency)) {
      return absl::StrCat("DP-1: job ", job.id.ToText(), " runs before ",
                          head::JobOf(dependency).ToText(), " has ended");
    }
  }
  // Who waits for others has no phase of its own then, and the clock may be set
  // back while it stands in line.  Phases are told to 10 ms.
  if (!job.spec->after().empty()) return "";
  const absl::Time start = head::StartTimeOf(*job.spec);
  for (const head::JobPhase& phase : job.row.phases()) {
    if (phase.kind() != v1::WAIT_KIND_NOTHING) continue;
    if (head::FromMicros(phase.since_us()) >= start - head::kJobPhaseMin) break;
    return absl::StrCat("ST-1: job ", job.id.ToText(),
                        " began before its start time");
  }
  return "";
}

// EL-2: `running` elements of each array.
std::string CheckArrays(const ClusterState& state,
                        const std::map<JobId, std::vector<JobId>>& running) {
  for (const auto& [array, elements] : running) {
    const auto spec =
        ArraySpec::Parse(state.jobs().Find(elements[0])->spec->array());
    if (!spec.ok() || !spec->at_once.has_value()) continue;
    if (elements.size() > static_cast<size_t>(*spec->at_once)) {
      return absl::StrCat("EL-2: ", elements.size(), " elements of ",
                          array.ToText(), " run, its limit is ",
                          *spec->at_once);
    }
  }
  return "";
}

// PL-2: what is held of a node is not more than it has, device by device.
class Holds {
 public:
  void Add(const AttemptRecord& attempt, const ResourceSet& each) {
    for (const head::Process& process : attempt.processes) {
      if (!head::HoldsRoom(attempt, process)) continue;
      sums_[process.node].Add(each);
      for (const auto& [gpu, amount] : process.devices) {
        devices_[{process.node, gpu}] += amount.ten_thousandths();
      }
    }
  }

  std::string Check(const ClusterState& state) const {
    for (const auto& [device, amount] : devices_) {
      if (amount > Amount::kScale) {
        return "PL-2: " + device.second + " is held twice";
      }
    }
    for (const auto& [node, sum] : sums_) {
      const head::NodeRecord* record = state.nodes().Find(node);
      if (record == nullptr || !state.nodes().ResourcesOf(node).Fits(sum)) {
        return "PL-2: more is held of a node than it has: " + sum.ToString();
      }
    }
    return "";
  }

 private:
  std::map<std::pair<NodeId, std::string>, int64_t> devices_;
  std::map<NodeId, ResourceSet> sums_;
};

template <typename Map, typename Records>
std::string CompareRows(const char* what, const Map& now,
                        const Records& stored) {
  if (now.size() != stored.size()) {
    return absl::StrCat("RS-1: ", now.size(), " ", what, " here, ",
                        stored.size(), " stored");
  }
  for (const auto& record : stored) {
    const auto found = now.find(record.id);
    if (found == now.end() || !(found->second == record)) {
      return absl::StrCat("RS-1: a row of ", what,
                          " differs: ", record.id.ToHex());
    }
  }
  return "";
}

std::string CompareJobs(const ClusterState& state,
                        std::vector<JobRecord> stored) {
  if (state.jobs().size() != stored.size()) {
    return absl::StrCat("RS-1: ", state.jobs().size(), " jobs here, ",
                        stored.size(), " stored");
  }
  for (JobRecord& job : stored) {
    const JobRecord* now = state.jobs().Find(job.id);
    if (now == nullptr) return "RS-1: a stored job is not here";
    head::KeepSoft(*now, job);
    if (!(job == *now)) {
      return absl::StrCat("RS-1: the row of job ", job.id.ToText(), " differs");
    }
  }
  return "";
}

std::string CompareDerived(const ClusterState& now, const ClusterState& then) {
  for (const auto& [node, record] : now.nodes().records()) {
    if (now.nodes().HeldOn(node) != then.nodes().HeldOn(node)) {
      return "RS-1: other attempts hold something of node " +
             record.node.name();
    }
    if (now.attempts().OnNode(node) != then.attempts().OnNode(node)) {
      return "RS-1: other attempts are known on node " + record.node.name();
    }
  }
  if (now.jobs().by_sequence() != then.jobs().by_sequence()) {
    return "RS-1: the jobs are in another order";
  }
  for (int state = 1; state <= static_cast<int>(v1::JOB_STATE_STOPPED);
       ++state) {
    const auto each = static_cast<JobState>(state);
    if (now.jobs().CountOf(each) != then.jobs().CountOf(each)) {
      return absl::StrCat("RS-1: another count of jobs ", EnumText(each));
    }
  }
  if (now.waiting_count() != then.waiting_count()) {
    return absl::StrCat("RS-1: ", now.waiting_count(), " jobs in line, after ",
                        "a restart ", then.waiting_count());
  }
  if (now.requests().size() != then.requests().size()) {
    return "RS-1: another number of requests is remembered";
  }
  const std::vector<head::HistoryLevel> kept = now.HistoryLevels();
  const std::vector<head::HistoryLevel> found = then.HistoryLevels();
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].count != found[i].count || kept[i].bytes != found[i].bytes) {
      return absl::StrCat("HI-1: ", kept[i].count, " ", kept[i].kind, ", ",
                          kept[i].bytes, " bytes are counted, there are ",
                          found[i].count, ", ", found[i].bytes);
    }
  }
  for (const std::string& hash : then.packages().Hashes()) {
    if (now.packages().Find(hash) == nullptr ||
        now.packages().PinsOf(hash) != then.packages().PinsOf(hash)) {
      return "RS-1: a package is pinned otherwise";
    }
  }
  return "";
}

std::string CheckHistory(const ClusterState& state) {
  for (const head::HistoryLevel& level : state.HistoryLevels()) {
    const bool too_much = level.count > level.caps.count_max ||
                          level.bytes > level.caps.bytes_max;
    if (!too_much || level.caps.age_min > absl::ZeroDuration()) continue;
    return absl::StrCat("HI-1: ", level.count, " ", level.kind, ", ",
                        level.bytes, " bytes");
  }
  return "";
}

}  // namespace

bool IsMet(const ClusterState& state, const head::Dependency& dependency) {
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    if (id != head::JobOf(dependency) && id.array() != head::JobOf(dependency))
      continue;
    const JobState is = state.jobs().Find(id)->row.state();
    if (!head::HasEnded(is)) return false;
    if (dependency.kind() == v1::DEPENDENCY_KIND_OK &&
        is != v1::JOB_STATE_SUCCEEDED) {
      return false;
    }
  }
  return true;
}

std::string CheckState(const ClusterState& state) {
  const size_t most_rows = state.counters().most_rows;
  if (most_rows > state.limits().turn_rows_max + kRowsOfOneWord) {
    return absl::StrCat("BD-1: a decision of ", most_rows, " rows");
  }
  std::map<JobId, std::vector<JobId>> elements;
  for (const auto& [sequence, id] : state.jobs().by_sequence()) {
    const JobRecord& job = *state.jobs().Find(id);
    std::string violation = CheckJob(job);
    if (violation.empty() && HasAttempt(job)) {
      violation = CheckEligible(state, job);
      if (id.IsElement()) elements[id.array()].push_back(id);
    }
    if (!violation.empty()) return violation;
  }
  std::string too_many = CheckArrays(state, elements);
  if (!too_many.empty()) return too_many;
  std::set<JobId> open;
  Holds holds;
  for (const auto& [id, attempt] : state.attempts().all()) {
    if (attempt.state == v1::ATTEMPT_STATE_ENDED) continue;
    if (!open.insert(attempt.job).second) {
      return absl::StrCat("JB-3: job ", attempt.job.ToText(),
                          " has two attempts");
    }
    std::string violation = CheckGang(state, attempt);
    if (violation.empty()) violation = CheckWhere(state, attempt);
    if (!violation.empty()) return violation;
    holds.Add(attempt,
              head::ResourcesPerWorker(*state.jobs().Find(attempt.job)->spec));
  }
  const std::string violation = holds.Check(state);
  return violation.empty() ? CheckHistory(state) : violation;
}

std::string CheckBudget(const JobRecord& job, bool is_whole) {
  const auto wrong = [&job](const std::string& what) {
    return absl::StrCat("JB-2: job ", job.id.ToText(), " is ",
                        EnumText(job.row.state()), " with ", what, ": ",
                        job.row.attempts(), " attempts, ", job.row.failures(),
                        " of ", job.spec->run().max_failures(), " failures, ",
                        job.row.infra_restarts(), " infra restarts");
  };
  const auto of_class = [&job](head::FailureClass failure) {
    return head::FailuresOf(job, failure);
  };
  int failed = 0;
  for (const v1::ClassCount& each : job.row.failures_by_class()) {
    failed += each.count();
  }
  const int timeouts = of_class(v1::FAILURE_CLASS_TIMEOUT);
  if (timeouts > 1 ||
      (timeouts == 1 && job.row.state() != v1::JOB_STATE_FAILED &&
       job.row.state() != v1::JOB_STATE_STOPPED)) {
    return absl::StrCat("TL-1: ", wrong("a time limit that fired"));
  }
  // Charged, free, or without a budget.
  if (failed != job.row.failures() + job.row.infra_restarts() + timeouts +
                    of_class(v1::FAILURE_CLASS_PREEMPTED)) {
    return "BG-1: " + wrong(absl::StrCat(failed, " failures by class"));
  }
  const bool time_left = job.ran() < head::TimeLimitOf(*job.spec);
  if (job.row.state() == v1::JOB_STATE_FAILED &&
      job.spec->run().max_failures() >= 0 &&
      job.row.failures() <= job.spec->run().max_failures() && timeouts == 0 &&
      time_left && job.spec->after().empty()) {
    return wrong("budget left");
  }
  if (!is_whole || head::RunsOneByOne(job)) return "";
  // One attempt at most ended otherwise: the last, by success or a stop.
  const int most = failed + (job.row.state() == v1::JOB_STATE_FAILED ? 0 : 1);
  const int least =
      failed + (job.row.state() == v1::JOB_STATE_SUCCEEDED ? 1 : 0);
  if (job.row.attempts() < least || job.row.attempts() > most) {
    return wrong("attempts that nobody counted");
  }
  return "";
}

std::string CheckRebuilt(const ClusterState& state, head::MemoryDisk& disk,
                         const head::ClusterLimits& limits,
                         const Clock& clock) {
  head::MemoryStore store(disk);
  absl::StatusOr<head::Rows> rows = head::LoadRows(store);
  if (!rows.ok()) return "RS-1: " + rows.status().ToString();
  if (!rows->cluster.has_value() || !(*rows->cluster == state.cluster())) {
    return "RS-1: the cluster row differs";
  }
  std::string violation =
      CompareRows("nodes", state.nodes().records(), rows->nodes);
  if (violation.empty()) {
    std::vector<AttemptRecord> attempts = rows->attempts;
    for (AttemptRecord& each : attempts) {
      if (const AttemptRecord* now = state.attempts().Find(each.id)) {
        head::KeepSoft(*now, each);
      }
    }
    violation = CompareRows("attempts", state.attempts().all(), attempts);
  }
  if (violation.empty()) violation = CompareJobs(state, rows->jobs);
  if (!violation.empty()) return violation;
  SeededRandom random(1);
  head::NoLinks nobody;
  const ClusterState rebuilt(limits, clock, random, nobody, nobody,
                             *std::move(rows));
  return CompareDerived(state, rebuilt);
}

std::string DurableHistory::OnRestored(const head::Batch& rows,
                                       bool as_a_copy) {
  if (as_a_copy) term_ = 0;
  ended_jobs_.clear();
  ended_attempts_.clear();
  return OnDurable(rows);
}

std::string DurableHistory::OnDurable(const head::Batch& batch) {
  for (const head::Write& write : batch) {
    std::string violation;
    if (write.table == head::Table::kJobs) violation = OnJob(write);
    if (write.table == head::Table::kAttempts) violation = OnAttempt(write);
    if (write.table == head::Table::kCluster && write.value.has_value()) {
      const auto stamp = head::ReadClusterStamp(*write.value);
      if (!stamp.ok() || stamp->term < term_) {
        violation = "TM-1: the stored term went back";
      } else {
        term_ = stamp->term;
      }
    }
    if (!violation.empty()) return violation;
  }
  return "";
}

std::string DurableHistory::OnJob(const head::Write& write) {
  if (!write.value.has_value()) {
    if (ended_jobs_.erase(write.key) == 0) {
      return "JB-1: a job that has not ended was removed";
    }
    return "";
  }
  const auto job = head::FromRow<JobRecord>(write.key, *write.value);
  if (!job.ok()) return "ST-1: " + job.status().ToString();
  if (const auto ended = ended_jobs_.find(write.key);
      ended != ended_jobs_.end() && ended->second != job->row.state()) {
    return absl::StrCat("JB-1: job ", job->id.ToText(), " was ",
                        EnumText(ended->second), " and is ",
                        EnumText(job->row.state()));
  }
  if (head::HasEnded(job->row.state())) {
    ended_jobs_[write.key] = job->row.state();
  }
  return "";
}

std::string DurableHistory::OnAttempt(const head::Write& write) {
  if (!write.value.has_value()) return "";
  const auto attempt = head::FromRow<AttemptRecord>(write.key, *write.value);
  if (!attempt.ok()) return "ST-1: " + attempt.status().ToString();
  if (attempt->state == v1::ATTEMPT_STATE_ENDED) {
    ended_attempts_.insert(write.key);
  } else if (ended_attempts_.contains(write.key)) {
    return absl::StrCat("AT-1: attempt ", attempt->id.ToHex(),
                        " came back to life");
  }
  return "";
}

}  // namespace cohort::sim
