#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "cohort/v1/node.pb.h"
#include "common/executor.h"
#include "rpc/router.h"

namespace cohort::head {

// The reason of a log whose node went away.
inline constexpr char kNodeAway[] = "node_away";

// The reason of an answer: the node has ended, and what lay there with it.
inline constexpr char kNodeGone[] = "node_gone";

// One log that a node sends on a call of its own, piece by piece, as its reader
// asks for them.
//
//   NL-1: the node sends a piece for each question, and one is open at a time;
//         a call that brings more, or a larger piece, is ended.
//   NL-2: each question is answered once, never inside a call: with a piece, or
//         with the reason that ended the log.
//
// Strand-bound.  Shared: its reader, who ends it by letting go, and the node's
// call while it handles a message.
class NodeLog final : public std::enable_shared_from_this<NodeLog> {
 public:
  // The piece lives during the call.
  using OnPiece = absl::AnyInvocable<void(absl::StatusOr<const v1::LogPiece*>)>;
  using Call = rpc::StreamWriter<v1::NextLogPiece>;

  // What a slow reader costs.  Large pieces cost a fast one a third of the
  // time, but are only for so many at once: 8,192 readers hold 368 MiB.
  static constexpr int kPieceBytesMax = 256 << 10;
  static constexpr int kSmallPieceBytes = 32 << 10;
  static constexpr int kLargeLogsMax = 512;
  // A node that has not opened the call by then sends nothing.
  static constexpr absl::Duration kCallTimeout = absl::Seconds(10);

  // The first question is open: who asks the node for the log asks for its
  // first piece.  `strand` outlives it.  `large`, one of kLargeLogsMax places
  // for logs with large pieces, is let go with the log; null: with small ones.
  NodeLog(Executor& strand, std::string node_name, OnPiece on_piece,
          std::shared_ptr<const void> large);
  // The node's call ends.
  ~NodeLog();

  NodeLog(const NodeLog&) = delete;
  NodeLog& operator=(const NodeLog&) = delete;

  // Asks for the next piece.  REQUIRES: the last answer was one.
  void Next(int64_t offset);

  // Fails after kCallTimeout unless the node's call has come.
  void AwaitCall();
  // The node's call has come; false: it is refused, as a second one is.
  bool Begin(std::unique_ptr<Call> call);
  // What it brought.
  void Take(const v1::LogPiece& piece);
  // Nothing more comes.  Only the first reason counts.
  void Fail(const absl::Status& why);
  // As Fail, because the node went away: Unavailable (kNodeAway).
  void FailAway();
  // Ends it for another log's sake, unless a question is open: whether it did.
  // Its reader has not taken the last piece; who goes on opens another.
  bool Drop();
  bool dropped() const { return dropped_; }
  bool failed() const { return !failure_.ok(); }
  int piece_bytes_max() const {
    return large_ != nullptr ? kPieceBytesMax : kSmallPieceBytes;
  }

 private:
  void AnswerWithFailure();

  Executor& strand_;
  const std::string node_name_;
  OnPiece on_piece_;
  const std::shared_ptr<const void> large_;
  std::unique_ptr<Call> call_;  // null until the node's has come
  bool asked_ = true;
  bool dropped_ = false;
  absl::Status failure_;
};

// Serves the calls by which nodes send logs: `find` knows which log one is for,
// or why nobody listens to it.
void ServeNodeLogs(rpc::Router& router, Executor& strand,
                   std::function<absl::StatusOr<std::shared_ptr<NodeLog>>(
                       const v1::LogRead& read)>
                       find);

}  // namespace cohort::head
