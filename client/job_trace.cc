#include "client/job_trace.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "client/message_text.h"
#include "common/printable_text.h"
#include "rpc/enum_text.h"
#include "rpc/wire_values.h"

namespace cohort {
namespace {

using Trace = nlohmann::ordered_json;

// A trace has processes and their threads: ours are the job and its nodes, and
// the tracks below them.
constexpr int kJobTracks = 1;
constexpr int kFirstNode = 2;
constexpr int kFirstCalls = 1'000'000;  // and the rank
constexpr int kStateTrack = 1;
constexpr int kWaitTrack = 2;
constexpr int kFirstAttempt = 3;
constexpr uint32_t kThreadsMax = 100'000;

// "RUNNING" of "RUNNING", "STARTING on w0", "FAILED: rank 1 ...".
std::string StateOf(const Event& event) {
  const std::string& text = event.text();
  return text.substr(0, text.find_first_of(" :"));
}

int64_t MicrosOf(absl::Time time) { return absl::ToUnixMicros(time); }

// Slices of one track, each until the next one begins.
class Track {
 public:
  Track(int process, int thread, Trace& events)
      : process_(process), thread_(thread), events_(events) {}

  void Begin(std::string name, int64_t at, Trace args) {
    End(at);
    open_ = Slice{std::move(name), at, std::move(args)};
  }
  // What is open ends.
  void End(int64_t at) {
    if (!open_.has_value()) return;
    events_.push_back({{"ph", "X"},
                       {"name", open_->name},
                       {"pid", process_},
                       {"tid", thread_},
                       {"ts", open_->at},
                       {"dur", std::max<int64_t>(at - open_->at, 0)},
                       {"args", std::move(open_->args)}});
    open_.reset();
  }

 private:
  struct Slice {
    std::string name;
    int64_t at;
    Trace args;
  };

  const int process_;
  const int thread_;
  Trace& events_;
  std::optional<Slice> open_;
};

class TraceWriter {
 public:
  TraceWriter(const JobPast& past, absl::Time now)
      : past_(past),
        now_(MicrosOf(now)),
        states_(kJobTracks, kStateTrack, all_) {}

  std::string Write() {
    const std::string id = IdText(past_.job.job_id());
    Name(kJobTracks, 0, "process_name",
         past_.job.name().empty() ? absl::StrCat("job ", id)
                                  : absl::StrCat(past_.job.name(), " ", id));
    Name(kJobTracks, kStateTrack, "thread_name", "state");
    for (const Event& event : past_.events) Add(event);
    const int64_t end = EndOf(past_.job);
    states_.End(end);
    for (auto& [attempt, shown] : attempts_) shown.track.End(end);
    AddWaits();
    AddRanks(end);
    for (const RankCalls& calls : past_.calls) AddCalls(calls);
    return Trace{{"traceEvents", std::move(all_)}, {"displayTimeUnit", "ms"}}
        .dump(1, ' ', /*ensure_ascii=*/false, Trace::error_handler_t::replace);
  }

 private:
  struct Attempt {
    Track track;
    std::optional<int64_t> ran_from;
    std::optional<int64_t> ran_until;
  };

  int64_t EndOf(const Job& job) const {
    return job.has_ended_at() ? MicrosOf(rpc::FromWire(job.ended_at())) : now_;
  }

  void Name(int process, int thread, const char* what,
            const std::string& name) {
    all_.push_back({{"ph", "M"},
                    {"name", what},
                    {"pid", process},
                    {"tid", thread},
                    {"args", {{"name", name}}}});
  }

  static Trace ArgsOf(const Event& event) {
    return {{"event", event.number()},
            {"by", event.principal().empty() ? "head" : event.principal()},
            {"text", event.text()}};
  }

  void Add(const Event& event) {
    const int64_t at = MicrosOf(rpc::FromWire(event.at()));
    if (event.kind() == "job_submitted") {
      states_.Begin("PENDING", at, ArgsOf(event));
    } else if (event.kind() == "job_moved") {
      AddState(event, at);
    } else if (event.kind() == "attempt_moved") {
      AddAttempt(event, StateOf(event), at);
    } else {
      AddInstant(event, at);
    }
  }

  void AddState(const Event& event, int64_t at) {
    const std::string state = StateOf(event);
    const bool is_last =
        state == "SUCCEEDED" || state == "FAILED" || state == "STOPPED";
    if (state == "STARTING") AddAttempt(event, "PREPARING", at);
    if (!is_last) return states_.Begin(state, at, ArgsOf(event));
    states_.End(at);
    AddInstant(event, at);
  }

  void AddAttempt(const Event& event, const std::string& state, int64_t at) {
    if (event.attempt_id().empty()) return;
    Attempt& attempt = Find(event.attempt_id());
    last_ = event.attempt_id();
    if (state == "RUNNING" && !attempt.ran_from.has_value()) {
      attempt.ran_from = at;
    }
    if (state != "ENDED") return attempt.track.Begin(state, at, ArgsOf(event));
    attempt.ran_until = at;
    attempt.track.End(at);
  }

  Attempt& Find(const std::string& id) {
    const auto known = attempts_.find(id);
    if (known != attempts_.end()) return known->second;
    const int number = static_cast<int>(attempts_.size()) + 1;
    const int thread = kFirstAttempt + number - 1;
    Name(kJobTracks, thread, "thread_name",
         absl::StrCat("attempt ", IdText(id).substr(0, 8)));
    return attempts_
        .emplace(id, Attempt{.track = Track(kJobTracks, thread, all_)})
        .first->second;
  }

  void AddInstant(const Event& event, int64_t at) {
    all_.push_back(
        {{"ph", "i"},
         {"name", absl::StrCat(event.kind(), event.text().empty() ? "" : ": ",
                               OneLine(Cut(event.text(), 80)))},
         {"s", "p"},
         {"pid", kJobTracks},
         {"tid", kStateTrack},
         {"ts", at},
         {"args", ArgsOf(event)}});
  }

  void AddWaits() {
    if (past_.waits.history().empty()) return;
    Name(kJobTracks, kWaitTrack, "thread_name", "waits for");
    for (const v1::WaitReason& each : past_.waits.history()) {
      Track track(kJobTracks, kWaitTrack, all_);
      track.Begin(each.blocker().kind(), each.since_us(),
                  {{"text", each.blocker().text()}});
      track.End(each.until_us() == 0 ? now_ : each.until_us());
    }
  }

  // Of the last attempt, whose ranks alone are known.
  void AddRanks(int64_t end) {
    const auto attempt = attempts_.find(last_);
    if (attempt == attempts_.end() || !attempt->second.ran_from.has_value()) {
      return;
    }
    std::map<std::string, int> nodes;
    for (const Rank& rank : past_.job.ranks()) {
      if (rank.node_id().empty()) continue;
      const auto [node, is_new] = nodes.emplace(
          rank.node_id(), kFirstNode + static_cast<int>(nodes.size()));
      const int process = node->second;
      if (is_new) {
        Name(process, 0, "process_name",
             absl::StrCat("node ", rank.node_name().empty()
                                       ? IdText(rank.node_id())
                                       : rank.node_name()));
      }
      const int thread = rank.rank() + 1;
      Name(process, thread, "thread_name", absl::StrCat("rank ", rank.rank()));
      Track track(process, thread, all_);
      track.Begin(absl::StrCat("rank ", rank.rank()), *attempt->second.ran_from,
                  ArgsOf(rank));
      track.End(attempt->second.ran_until.value_or(end));
    }
  }

  void AddCalls(const RankCalls& calls) {
    const int process = kFirstCalls + calls.rank().rank();
    Name(process, 0, "process_name",
         absl::StrCat("calls of rank ", calls.rank().rank(), " on ",
                      calls.rank().node_name(), ", pid ", calls.rank().pid()));
    std::set<int> threads;
    for (const v1::ServedCalls::Call& call : calls.calls().calls()) {
      const int thread = static_cast<int>(call.thread() % kThreadsMax) + 1;
      if (threads.insert(thread).second) {
        Name(process, thread, "thread_name", absl::StrCat("thread ", thread));
      }
      const int64_t begun = call.queued_us() + call.waited_us();
      const bool is_known =
          call.method() < static_cast<uint32_t>(calls.calls().methods_size());
      Track track(process, thread, all_);
      track.Begin(
          is_known
              ? OneLine(calls.calls().methods(static_cast<int>(call.method())))
              : "?",
          begun,
          {{"caller", absl::StrCat(absl::Hex(call.caller(), absl::kZeroPad8))},
           {"waited_us", call.waited_us()},
           {"runs", call.ran_us() < 0}});
      track.End(call.ran_us() < 0 ? now_ : begun + call.ran_us());
    }
  }

  static Trace ArgsOf(const Rank& rank) {
    Trace gpus = Trace::array();
    for (const std::string& gpu : rank.gpu_ids()) gpus.push_back(gpu);
    Trace args = {{"pid", rank.pid()},
                  {"state", EnumText(rank.state())},
                  {"incarnation", rank.incarnation()},
                  {"failures", rank.failures()},
                  {"gpus", std::move(gpus)}};
    if (rank.has_exit()) {
      args["exit_code"] = rank.exit().code();
      args["signal"] = rank.exit().signal();
    }
    return args;
  }

  const JobPast& past_;
  const int64_t now_;
  Trace all_ = Trace::array();
  Track states_;
  std::map<std::string, Attempt> attempts_;
  std::string last_;  // attempt
};

}  // namespace

std::string TraceJson(const JobPast& past, absl::Time now) {
  return TraceWriter(past, now).Write();
}

}  // namespace cohort
