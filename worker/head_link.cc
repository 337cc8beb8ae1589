#include "worker/head_link.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/log.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::worker {
namespace {

// More than a head sends between Registered and a disk write.  Where the disk
// is full that takes longer.
constexpr size_t kEarlyBytesMax = 64 << 20;
constexpr size_t kEarlyMessageBytes = 256;  // of each, beside what is in it

// Written and not taken by the head; beyond it nothing is added but signs of
// life and answers to its questions.
constexpr size_t kQueuedBytesMax = 1 << 20;

// Between tries: a restarted head is found within a fraction of a second, and
// 1,000 workers without one make 1,000 tries a second at most.
constexpr absl::Duration kBackoffMin = absl::Milliseconds(100);
constexpr absl::Duration kBackoffMax = absl::Seconds(1);
// A head that has accepted the stream and not answered by then is asked again.
constexpr absl::Duration kRegisterTimeout = absl::Seconds(10);

}  // namespace

HeadLink::HeadLink(v1::Register registration, rpc::Channel& channel,
                   NodeState& node, ClusterBinding& binding, Executor& strand,
                   Random& random, Events events)
    : registration_(std::move(registration)),
      channel_(channel),
      node_(node),
      binding_(binding),
      strand_(strand),
      random_(random),
      events_(std::move(events)),
      backoff_(kBackoffMin),
      self_(std::make_shared<HeadLink*>(this)) {}

HeadLink::~HeadLink() { *self_ = nullptr; }

void HeadLink::Start() {
  COHORT_CHECK(state_ == State::kIdle);
  if (const auto bound = binding_.Current(); bound.has_value()) {
    node_.Follow(bound->generation());
  }
  Join();
}

void HeadLink::AnnounceLeaving() {
  leaving_ = true;
  if (state_ == State::kJoined) SendHeartbeat();
}

void HeadLink::SetNotReady(std::string why) {
  not_ready_ = std::move(why);
  if (state_ == State::kJoined) SendHeartbeat();
}

void HeadLink::SetAuthority(std::string fingerprint) {
  authority_ = std::move(fingerprint);
  if (state_ == State::kJoined) SendHeartbeat();
}

void HeadLink::NoteDevices() {
  if (state_ == State::kJoined) SendHeartbeat();
}

void HeadLink::Stop() {
  state_ = State::kStopped;
  ++stream_number_;
  stream_.reset();
}

void HeadLink::Join() {
  state_ = State::kJoining;
  bound_ = false;
  early_.clear();
  early_bytes_ = 0;
  const uint64_t number = ++stream_number_;
  stream_ = rpc::OpenStream<v1::WorkerMessage, v1::HeadMessage>(
      channel_, rpc::kConnect, {.deadline = absl::InfiniteDuration()}, strand_,
      {.on_message =
           [this, number](const v1::HeadMessage& message) {
             OnMessage(number, message);
           },
       .on_closed = [this, number](
                        absl::Status status,
                        auto) { OnClosed(number, std::move(status)); },
       .on_drained = [this, number] { OnDrained(number); }});

  std::vector<v1::Observed> chunks = node_.FullObserved();
  chunks_.assign(std::make_move_iterator(chunks.begin()),
                 std::make_move_iterator(chunks.end()));
  v1::WorkerMessage message;
  if (const auto bound = binding_.Current(); bound.has_value()) {
    *message.mutable_stamp() = *bound;
  }
  *message.mutable_register_() = registration_;
  *message.mutable_register_()->mutable_observed() = chunks_.front();
  chunks_.pop_front();
  message.mutable_register_()->set_leaving(leaving_);
  message.mutable_register_()->set_not_ready(NotReady());
  message.mutable_register_()->set_authority(authority_);
  AddDevices(message.mutable_register_()->mutable_device_states());
  Send(std::move(message));
  SendChunks();
  AwaitRegistered(number, chunks_.size());
}

void HeadLink::AwaitRegistered(uint64_t stream, size_t unsent) {
  After(kRegisterTimeout, [this, stream, unsent] {
    if (stream != stream_number_ || state_ != State::kJoining) return;
    if (chunks_.size() < unsent) {
      return AwaitRegistered(stream, chunks_.size());
    }
    Leave(absl::DeadlineExceededError(
        absl::StrCat("the head at ", channel_.address(),
                     " did not answer the registration in ",
                     absl::FormatDuration(kRegisterTimeout))));
  });
}

void HeadLink::OnDrained(uint64_t stream) {
  if (stream != stream_number_) return;
  SendChunks();
  Flush();
}

bool HeadLink::HasRoom() const {
  return stream_ != nullptr && stream_->QueuedBytes() < kQueuedBytesMax;
}

void HeadLink::SendChunks() {
  while (!chunks_.empty() && HasRoom()) {
    v1::WorkerMessage message;
    *message.mutable_observed() = std::move(chunks_.front());
    chunks_.pop_front();
    Send(std::move(message));
  }
}

void HeadLink::OnMessage(uint64_t stream, const v1::HeadMessage& message) {
  if (stream != stream_number_) return;
  const absl::Status ours = CheckStamp(message.stamp());
  if (!ours.ok()) return Leave(ours);
  if (!message.authority().empty() && events_.on_authority) {
    events_.on_authority(message.authority());
  }
  if (message.has_registered()) return OnRegistered(stream, message);
  if (state_ != State::kJoined) {
    return Leave(absl::InvalidArgumentError(absl::StrCat(
        "the head at ", channel_.address(), " spoke before it registered us")));
  }
  if (message.has_send_log()) {  // which changes nothing here (HL-2)
    return events_.on_send_log(message.stamp(), message.send_log());
  }
  if (!bound_) {
    return KeepEarly(message);
  }
  switch (message.body_case()) {
    case v1::HeadMessage::kDesired:
      node_.Apply(message.desired());
      // Not before: a set that breaks the stream each time is not to be tried
      // without a pause.
      if (message.desired().full() && !message.desired().more()) {
        backoff_ = kBackoffMin;
      }
      break;
    case v1::HeadMessage::kAcknowledge:
      node_.Acknowledge(message.acknowledge());
      break;
    default:
      break;  // of a later version; it does not rely on us
  }
}

void HeadLink::KeepEarly(const v1::HeadMessage& message) {
  early_bytes_ += message.ByteSizeLong() + kEarlyMessageBytes;
  if (early_bytes_ > kEarlyBytesMax) return early_.clear();
  early_.push_back(message);
}

void HeadLink::OnRegistered(uint64_t stream, const v1::HeadMessage& message) {
  const v1::Registered& registered = message.registered();
  if (registered.version() < kProtocolMin ||
      registered.version() > kProtocolMax) {
    return Leave(absl::FailedPreconditionError(
        absl::StrCat("the head at ", channel_.address(),
                     " speaks protocol version ", registered.version(),
                     ", this worker ", kProtocolMin, " to ", kProtocolMax)));
  }
  state_ = State::kJoined;
  incarnation_ = registered.incarnation();
  heartbeat_interval_ = std::max(rpc::FromWire(registered.heartbeat_interval()),
                                 absl::Milliseconds(1));
  const std::optional<v1::Stamp> bound = binding_.Current();
  if (bound.has_value() &&
      bound->generation() != message.stamp().generation()) {
    COHORT_LOG(kWarning, "head_restored", {"head", channel_.address()},
               {"term", message.stamp().term()},
               {"meaning", "its store is a restored backup; ranks go on"});
  }
  node_.Follow(message.stamp().generation());
  Bind(stream, message.stamp());
  Beat(stream);
  NoteChange();  // what happened since the registration was written
}

void HeadLink::Bind(uint64_t stream, const v1::Stamp& stamp) {
  binding_.Save(
      stamp, [this, stream, stamp, self = self_](const absl::Status& status) {
        if (*self == nullptr || stream != stream_number_) return;
        if (!status.ok()) {
          // A full disk: the ranks and the lease go on, orders wait.
          After(kBackoffMax, [this, stream, stamp] {
            if (stream == stream_number_) Bind(stream, stamp);
          });
          SetUnbound(std::string(status.message()));
          return;
        }
        bound_ = true;
        if (early_bytes_ > kEarlyBytesMax) {
          // Not before: it would send as much, and the lease goes on.
          unbound_.clear();
          return Leave(absl::UnavailableError(
              "it sent more than this node could keep while its disk was "
              "full: it is to say it again"));
        }
        for (const v1::HeadMessage& early : std::exchange(early_, {})) {
          OnMessage(stream, early);
        }
        events_.on_joined();
        SetUnbound("");
      });
}

void HeadLink::SetUnbound(std::string why) {
  // The first reason stands: each try has another temporary name in it.
  if (why.empty() == unbound_.empty()) return;
  unbound_ = std::move(why);
  if (!unbound_.empty()) {
    COHORT_LOG(kError, "binding_not_written", {"why", unbound_},
               {"meaning", "no new work is taken; what runs goes on"});
  }
  if (state_ == State::kJoined) SendHeartbeat();
}

absl::Status HeadLink::CheckStamp(const v1::Stamp& stamp) const {
  const std::optional<v1::Stamp> bound = binding_.Current();
  if (!bound.has_value()) return absl::OkStatus();
  if (stamp.cluster_id() != bound->cluster_id()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the head at ", channel_.address(), " is of cluster ",
        absl::BytesToHexString(stamp.cluster_id()), ", this worker belongs to ",
        absl::BytesToHexString(bound->cluster_id()),
        ": its ranks go on; start the right head there, or this worker with "
        "another --state-dir"));
  }
  if (stamp.generation() != bound->generation() &&
      stamp.term() <= bound->term()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the head at ", channel_.address(), " has a store of term ",
        stamp.term(), ", one that was restored from a backup later, of term ",
        bound->term(),
        ", was here: its ranks go on; start the head on that one, or restore "
        "the other again"));
  }
  if (stamp.term() < bound->term()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the head at ", channel_.address(), " is of term ", stamp.term(),
        ", a newer one of term ", bound->term(), " was here"));
  }
  if (stamp.term() == bound->term() && stamp.nonce() != bound->nonce()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the head at ", channel_.address(), " is of term ", stamp.term(),
        ", and another one of that term was here, on a copy of its store: the "
        "ranks go on; start the head on the newest store, or restore the other "
        "again"));
  }
  return absl::OkStatus();
}

void HeadLink::OnClosed(uint64_t stream, absl::Status status) {
  if (stream != stream_number_) return;
  if (status.ok()) status = absl::UnavailableError("the head ended the stream");
  Leave(std::move(status));
}

void HeadLink::Leave(absl::Status why) {
  if (state_ == State::kStopped) return;
  ++stream_number_;
  stream_.reset();
  chunks_.clear();
  if (absl::IsUnavailable(why) || absl::IsDeadlineExceeded(why)) {
    // Once a loss, not at each try.
    if (state_ == State::kJoined) {
      COHORT_LOG(kWarning, "head_lost", {"head", channel_.address()},
                 {"why", why.message()});
    }
  } else {
    events_.on_refused(why);
  }
  ScheduleJoin();
}

void HeadLink::ScheduleJoin() {
  state_ = State::kIdle;
  // Half to all of the back-off, so that many workers do not come at once.
  const absl::Duration delay =
      backoff_ * (0.5 + static_cast<double>(random_.Below(1024)) / 2048);
  backoff_ = std::min(backoff_ * 2, kBackoffMax);
  After(delay, [this, number = stream_number_] {
    if (number == stream_number_ && state_ == State::kIdle) Join();
  });
}

void HeadLink::Beat(uint64_t stream) {
  if (stream != stream_number_ || state_ != State::kJoined) return;
  SendHeartbeat();
  After(heartbeat_interval_, [this, stream] { Beat(stream); });
}

void HeadLink::SendHeartbeat() {
  v1::WorkerMessage message;
  message.mutable_heartbeat()->set_leaving(leaving_);
  message.mutable_heartbeat()->set_not_ready(NotReady());
  message.mutable_heartbeat()->set_authority(authority_);
  AddDevices(message.mutable_heartbeat()->mutable_devices());
  Send(std::move(message));
}

void HeadLink::AddDevices(
    google::protobuf::RepeatedPtrField<v1::DeviceStatus>* out) {
  if (!events_.devices) return;
  for (v1::DeviceStatus& device : events_.devices()) {
    *out->Add() = std::move(device);
  }
}

void HeadLink::NoteChange() {
  if (flushing_) return;
  flushing_ = true;
  // Everything that changes in this turn of the strand goes in one message.
  After(absl::ZeroDuration(), [this] {
    flushing_ = false;
    Flush();
  });
}

void HeadLink::Flush() {
  // Once joined, or drained, it is done again.
  while (state_ == State::kJoined && HasRoom()) {
    v1::WorkerMessage message;
    *message.mutable_observed() = node_.TakeDelta();
    if (message.observed().places_size() == 0) return;
    Send(std::move(message));
  }
}

void HeadLink::Send(v1::WorkerMessage message) {
  if (!message.has_register_()) {
    message.set_incarnation(incarnation_);
    if (const auto bound = binding_.Current(); bound.has_value()) {
      *message.mutable_stamp() = *bound;
    }
  }
  const absl::Status status = stream_->Write(message);
  // A full queue means a head that does not read: start over, with everything
  // (HL-3).  Unavailable comes through on_closed too.
  if (absl::IsResourceExhausted(status)) Leave(status);
}

void HeadLink::After(absl::Duration delay, absl::AnyInvocable<void() &&> task) {
  Task guarded = [self = self_, task = std::move(task)]() mutable {
    if (*self != nullptr) std::move(task)();
  };
  if (delay == absl::ZeroDuration()) {
    strand_.Post(std::move(guarded));
  } else {
    strand_.PostAfter(delay, std::move(guarded));
  }
}

}  // namespace cohort::worker
