#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "common/strong_id.h"
#include "rpc/channel.h"
#include "worker/log_reader.h"
#include "worker/node_directories.h"
#include "worker/piece_reader.h"
#include "worker/work_directory.h"

namespace cohort::worker {

// Sends ranks' logs to the head, each on a call of its own, from the segments
// that the keepers write; and jobs' files and processes' stacks in the same
// way.
//
//   LO-1: of each log one piece at a time is read and sent, when the head asked
//         for it; a call whose head asks twice is ended.
//   LO-2: a call lives until the head ends it or is gone.
//
// A log that says nothing costs two stats a look, and all of them one task.
//
// Reads of logs go to `disk`, of what stands in place of one to `bulk`.
// Thread-compatible: the node strand owns it.
class LogService {
 public:
  // Calls at once: twice what a head asks of a node, as those that it has ended
  // may not have ended here yet.
  static constexpr size_t kCallsMax = 2'048;

  // All outlive the service and what it posted.
  LogService(const NodeDirectories& directories, const WorkDirectories& work,
             const NodeId& node, rpc::Channel& channel, Executor& strand,
             Executor& disk, Executor& bulk);

  // What the head of that stamp asks for.  Beyond kCallsMax it is dropped, and
  // the head gives up waiting for the call.
  void Send(const v1::Stamp& head, const v1::SendLog& order);
  // Ends all calls; for good.
  void Stop();

 private:
  struct Call {
    v1::SendLog order;  // with the offset of the next piece
    std::unique_ptr<rpc::TypedStream<v1::LogMessage>> stream;
    // One of these; shared with the read on `disk` or `bulk`.
    std::shared_ptr<SlotLogReader> log;
    std::shared_ptr<PieceReader> instead;
    bool reading = true;
    // The last answer was that there is nothing.
    bool quiet = false;
    // Of the last look that found nothing, and how long its question has waited
    // if it is one of those that LookAtResting looks at.
    std::optional<LogMark> mark;
    std::optional<absl::Duration> rested;
  };

  // It is over.
  void Forget(uint64_t number);
  void OnNext(uint64_t number, int64_t offset);
  // Reads a piece for a reader that has waited for it so long, again later when
  // there is none and it may wait.
  void Read(uint64_t number, absl::Duration waited);
  // There was nothing, by `mark` where it is to be told whether that changes.
  void Wait(uint64_t number, absl::Duration waited, absl::Duration pause,
            const absl::StatusOr<LogMark>& mark);
  // Looks at all calls that rest, in one go, as long as there are any.
  void LookAtResting();
  void OnPiece(uint64_t number, const v1::LogMessage& message);

  const NodeDirectories& directories_;
  const WorkDirectories& work_;
  const NodeId node_;
  rpc::Channel& channel_;
  Executor& strand_;
  Executor& disk_;
  Executor& bulk_;
  bool stopped_ = false;
  // By numbers of our own: read ids are each head's.
  std::map<uint64_t, Call> calls_;
  uint64_t next_ = 1;
  bool looks_at_resting_ = false;
};

}  // namespace cohort::worker
