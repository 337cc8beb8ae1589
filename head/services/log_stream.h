#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/cluster.pb.h"
#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "common/job_id.h"
#include "common/strong_id.h"
#include "head/services/last_logs.h"
#include "head/services/node_log.h"
#include "head/services/node_service.h"
#include "head/services/state_host.h"
#include "rpc/call_context.h"
#include "rpc/stream.h"

namespace cohort::head {

// One reader of one rank's log: takes it from the rank's node piece by piece
// and passes on what comes, across processes and attempts when it follows.
//
//   LG-1: no piece is asked for while the client has not taken the last one, so
//         a slow client costs one.
//   LG-2: bytes leave in order, each once; a gap is told (`skipped`).
//   LG-3: it ends with OK only when everything was sent: the rank has ended
//         and, when following, so has the job.
//
// Strand-bound.  Shared: the Router's reader, and ClusterService to wake it.
class LogStream final : public std::enable_shared_from_this<LogStream> {
 public:
  using Writer = rpc::StreamWriter<v1::ReadLogResponse>;

  // Before a log that a node does not have yet is asked for again.
  static constexpr absl::Duration kRetryDelay = absl::Milliseconds(200);
  // How often a follower asks a node that is away before it gives up: 5 s, in
  // which a restarted daemon is back.
  static constexpr int kAwayRetriesMax = 25;

  // Of one piece; those of one that has more are not passed on.
  static constexpr int kTimesMax = 4'096;

  // All outlive the stream's end; `last_logs` may be null.
  LogStream(StateHost& host, NodeService& nodes, LastLogs* last_logs,
            Executor& strand, std::unique_ptr<Writer> writer);

  // The client's one message.
  void Begin(const v1::ReadLogRequest& request);
  // The job changed: what was waited for may be there.
  void Wake();
  // Ends it; nothing is done afterwards.
  void Close(const absl::Status& status);

  bool begun() const { return begun_; }
  const JobId& job() const { return job_; }

 private:
  // Takes the next step: asks, goes to the next attempt, waits or ends.
  void Step();
  absl::Status CheckRequest(const v1::ReadLogRequest& request);
  void Ask(const AttemptId& attempt, const NodeId& node);
  void OnAnswer(const absl::StatusOr<const v1::LogPiece*>& answer);
  void OnUnknown();
  // Its node is away, or does not send it: the head may have kept its end.
  void OnUnavailable(const absl::Status& status);
  void OnKept(const LastLogs::Found& found);
  // Neither has it.
  void OnNowhere(const absl::Status& status);
  absl::Status Told(const absl::Status& status);
  // Everything of this process was sent, or nothing more of it can be had: goes
  // on with the slot's next one, or the next attempt's.
  void Next();
  // The slot was filled again since.
  bool HasLaterProcess(const ClusterState& state) const;
  void RetryLater();
  bool Send(const v1::LogPiece& piece, const std::string& gone_node = "");

  StateHost& host_;
  NodeService& nodes_;
  LastLogs* const last_logs_;
  Executor& strand_;
  const std::unique_ptr<Writer> writer_;

  bool begun_ = false;
  bool closed_ = false;
  JobId job_;
  int rank_ = 0;
  v1::LogStream stream_ = v1::LOG_STREAM_STDOUT;
  bool follow_ = false;
  int attempt_ = 0;  // 0: the job has none yet
  AttemptId attempt_id_;
  uint64_t incarnation_ = 0;  // of the process; 0: not known yet
  NodeId node_;               // where it is
  int64_t offset_ = 0;        // negative: so far before the end

  // Of this process; null until it was asked for, and while its node is away.
  std::shared_ptr<NodeLog> log_;
  bool asking_ = false;    // or about to ask again
  bool draining_ = false;  // the client has to take what was sent
  bool waiting_ = false;   // for the job to change
  bool finished_ = false;  // with this process
  int away_retries_ = 0;
};

}  // namespace cohort::head
