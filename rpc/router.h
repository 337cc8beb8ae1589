#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/arena.h"
#include "google/protobuf/message_lite.h"

#include "common/clock.h"
#include "common/executor.h"
#include "rpc/admission.h"
#include "rpc/authenticator.h"
#include "rpc/batch_line.h"
#include "rpc/call_context.h"
#include "rpc/fair_line.h"
#include "rpc/method.h"
#include "rpc/reply.h"
#include "rpc/role.h"
#include "rpc/stamp.h"
#include "rpc/stream.h"
#include "rpc/transport.h"

namespace cohort::rpc {

struct RouterOptions {
  // Calls and streams at once.
  Admission::Limits calls;
  // Either way.  Package chunks are 1 MiB; the largest job specs are far below.
  size_t message_bytes_max = 8 << 20;
  // What a stream's client has not taken yet.
  size_t stream_queue_messages_max = 4096;
  size_t stream_queue_bytes_max = 16 << 20;
  // What a stream's strand has not handled yet; beyond it reading stops.
  size_t stream_window_messages = 64;
  size_t stream_window_bytes = 1 << 20;
};

// What a Router reports of every call that it answered, for metrics.
// Thread-safe, must not block, and calls nothing of the Router.
class CallObserver {
 public:
  virtual ~CallObserver() = default;

  // `path` is the method's, or "unknown".  `took`: from the call's arrival to
  // its answer; of a stream, how long it lived.
  virtual void OnAnswered(absl::string_view path, bool is_stream,
                          absl::StatusCode code, absl::Duration took) = 0;

  // A call that the Authenticator (then `who` is null) or its role refused;
  // before OnAnswered.
  virtual void OnRefused(absl::string_view /*path*/,
                         const std::string& /*peer*/, const Principal* /*who*/,
                         const absl::Status& /*why*/) {}
};

// Which messages of a stream may wait a moment before they are handled.  Those
// of thousands of streams then wake the strand once, not once each.
template <typename Up>
struct Batching {
  // At most; null `may_wait`: none may.
  absl::Duration delay;
  // Called on the transport's threads.
  bool (*may_wait)(const Up& message) = nullptr;
};

class RouterCore;

// The server side of every call: who may call what, on which strand it runs,
// and how it ends.  Transports bring the bytes.
//
// Each daemon has one for each address that it serves.  Handle and HandleStream
// are for the composition root before the first call; the rest is thread-safe.
// Calls that it accepted may outlive it, their strands may not be gone before
// the transport has been shut down.
//
// RT-1: a unary call is answered exactly once, whatever its handler does.
// RT-2: a handler runs on its strand only, and not at all when its call was
//       cancelled or late while it waited there.
// RT-3: no handler runs for a caller that the Authenticator refused, or whose
//       role is not among the method's.
// RT-4: a peer's garbage, size or number of calls ends that peer's calls only.
// RT-5: every answer, errors too, carries the stamp of the moment it was given.
// RT-6: OnClosed comes exactly once to every stream that `open` accepted.
// RT-7: callers take turns on a strand, and nodes do not wait for them
//       (Admission, FairLine).
// RT-9: a stream, or a call that waits, ends with the Authenticator's refusal
//       once its caller's token is revoked, expired or forgotten (EndRefused).
// RT-8: a stream's message that may wait (Batching) is handled before what
//       comes after it on the same stream.
class Router {
 public:
  template <typename Req, typename Resp>
  using Handler =
      std::function<void(const std::shared_ptr<CallContext>& context,
                         const Req& request, Reply<Resp> reply)>;
  // Opens a stream: the reader for its messages, or why not.
  template <typename Up, typename Down>
  using Open = std::function<absl::StatusOr<std::unique_ptr<StreamReader<Up>>>(
      const std::shared_ptr<CallContext>& context,
      std::unique_ptr<StreamWriter<Down>> writer)>;

  // `clock` outlives the Router and its calls.
  Router(RouterOptions options, Authenticator authenticator,
         const Clock& clock);
  ~Router();

  Router(const Router&) = delete;
  Router& operator=(const Router&) = delete;

  // Runs `handler` on `strand` for each call of `method`.  REQUIRES: the path
  // is new; `strand` outlives the transport's shutdown.
  template <typename Req, typename Resp>
  void Handle(const UnaryMethod<Req, Resp>& method, Executor& strand,
              std::type_identity_t<Handler<Req, Resp>> handler);

  // Opens a stream with `open` on `strand` for each call of `method`.  REQUIRES
  // as Handle.
  template <typename Up, typename Down>
  void HandleStream(const StreamMethod<Up, Down>& method, Executor& strand,
                    std::type_identity_t<Open<Up, Down>> open,
                    std::type_identity_t<Batching<Up>> batching = {});

  // Ends the streams, and the calls that wait, of those whom the Authenticator
  // lets in no more, as it says (RT-9).
  void EndRefused();

  // What every answer from now on carries; nothing until the first call.
  void SetStamp(Stamp stamp);

  // Before the first call; it outlives the Router and its calls.
  void SetObserver(CallObserver& observer);

  const RouterOptions& options() const;
  // Calls and streams that have not ended yet.
  size_t calls_in_flight() const;

  // All that it serves, by path.
  std::vector<std::pair<std::string, Roles>> Methods() const;

  // The paths of the unary methods.
  std::vector<std::string> UnaryPaths() const;

  // For transports: takes a call.  `transport` lives until its Finish, which
  // may come before this returns (a refusal).  Never null.
  std::shared_ptr<ServerCall> Accept(CallInfo info, ServerTransport& transport);

  // How handlers look without their types; the templates wrap the typed ones.
  using Message = google::protobuf::MessageLite;
  using RawReader = StreamReader<Message>;
  using RawHandler =
      std::function<void(const std::shared_ptr<CallContext>&, const Message&,
                         std::shared_ptr<ReplySink>)>;
  using RawOpen = std::function<absl::StatusOr<std::unique_ptr<RawReader>>(
      const std::shared_ptr<CallContext>&, std::shared_ptr<StreamSink>)>;

  // Either kind of method.
  struct Method {
    std::string path;
    Roles roles = kAdmins;
    Load load;
    Executor* strand;
    // Before the strand; null for a node's stream, which waits for nobody.
    // Shared: the methods of a strand.
    std::shared_ptr<FairLine> line;
    // Makes an empty message of the type that the client sends, on the arena,
    // or by itself and the caller's where there is none.
    Message* (*new_message)(google::protobuf::Arena* arena);
    // One of the two.
    RawHandler handler;
    RawOpen open;
    // Of a stream: which messages may wait, and where they do; null for none.
    std::function<bool(const Message&)> may_wait;
    std::unique_ptr<BatchLine> batch_line;
    bool is_audited = false;
  };

  // Runs the handlers of audited methods in the Router's place, on their
  // strand: it calls `method.handler`, and may answer through a sink of its
  // own.
  using Around = std::function<void(
      const Method& method, const std::shared_ptr<CallContext>& context,
      const Message& request, std::shared_ptr<ReplySink> sink)>;
  // Before the first call.
  void SetAround(Around around);

 private:
  void Add(Method method);

  // Shared: this and the calls in flight.
  const std::shared_ptr<RouterCore> core_;
  const Authenticator authenticator_;
  absl::flat_hash_map<Executor*, std::shared_ptr<FairLine>> lines_;
  // Shared: this and the calls in flight.
  absl::flat_hash_map<std::string, std::shared_ptr<const Method>> methods_;
};

namespace internal {

template <typename M>
google::protobuf::MessageLite* NewMessage(google::protobuf::Arena* arena) {
  return google::protobuf::Arena::CreateMessage<M>(arena);
}

// Gives a typed reader the Router's untyped messages.
template <typename Up>
class TypedReader final : public StreamReader<google::protobuf::MessageLite> {
 public:
  explicit TypedReader(std::unique_ptr<StreamReader<Up>> reader)
      : reader_(std::move(reader)) {}

  void OnMessage(const google::protobuf::MessageLite& message) override {
    reader_->OnMessage(static_cast<const Up&>(message));
  }
  void OnHalfClosed() override { reader_->OnHalfClosed(); }
  void OnClosed(absl::Status status) override {
    reader_->OnClosed(std::move(status));
  }

 private:
  const std::unique_ptr<StreamReader<Up>> reader_;
};

}  // namespace internal

template <typename Req, typename Resp>
void Router::Handle(const UnaryMethod<Req, Resp>& method, Executor& strand,
                    std::type_identity_t<Handler<Req, Resp>> handler) {
  Add({.path = method.path,
       .roles = method.roles,
       .load = method.load,
       .strand = &strand,
       .line = nullptr,
       .new_message = &internal::NewMessage<Req>,
       .handler =
           [handler = std::move(handler)](
               const std::shared_ptr<CallContext>& context,
               const Message& request, std::shared_ptr<ReplySink> sink) {
             handler(context, static_cast<const Req&>(request),
                     Reply<Resp>(std::move(sink)));
           },
       .open = nullptr,
       .may_wait = nullptr,
       .batch_line = nullptr,
       .is_audited = method.IsAudited()});
}

template <typename Up, typename Down>
void Router::HandleStream(const StreamMethod<Up, Down>& method,
                          Executor& strand,

                          std::type_identity_t<Open<Up, Down>> open,
                          std::type_identity_t<Batching<Up>> batching) {
  std::function<bool(const Message&)> may_wait;
  std::unique_ptr<BatchLine> batch_line;
  if (batching.may_wait != nullptr) {
    batch_line = std::make_unique<BatchLine>(strand, batching.delay);
    may_wait = [rule = batching.may_wait](const Message& message) {
      return rule(static_cast<const Up&>(message));
    };
  }
  Add({.path = method.path,
       .roles = method.roles,
       .load = method.load,
       .strand = &strand,
       .line = nullptr,
       .new_message = &internal::NewMessage<Up>,
       .handler = nullptr,
       .open = [open = std::move(open)](
                   const std::shared_ptr<CallContext>& context,
                   std::shared_ptr<StreamSink> sink)
           -> absl::StatusOr<std::unique_ptr<RawReader>> {
         auto reader = open(
             context, std::make_unique<StreamWriter<Down>>(std::move(sink)));
         if (!reader.ok()) return reader.status();
         return std::make_unique<internal::TypedReader<Up>>(*std::move(reader));
       },
       .may_wait = std::move(may_wait),
       .batch_line = std::move(batch_line)});
}

}  // namespace cohort::rpc
