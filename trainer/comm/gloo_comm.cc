#include "trainer/comm/gloo_comm.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"

#include "common/mutex.h"
#include "common/round_up.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/packed_addresses.h"
#include "trainer/comm/reduce.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

using Instant = std::chrono::steady_clock::time_point;
using GlooBuffer = gloo::transport::UnboundBuffer;

// Large buffers travel in pieces, so that combining one overlaps with receiving
// the next: two at least of what a rank combines, of these bytes.  Two of each
// peer have room, as long as that is no more than kStageBytesMax.
constexpr size_t kPieceBytesMin = size_t{256} << 10;
constexpr size_t kPieceBytesMax = size_t{4} << 20;
constexpr size_t kStageBytesMax = size_t{64} << 20;
// How long a communicator that is done waits for the last bytes to reach peers
// that are not.
constexpr absl::Duration kLeaveDeadline = absl::Seconds(1);

// Gloo's word for the streams of messages between two ranks.  Each operation
// has its own, so that what it asked for in vain is not met by the next.
enum Stream : uint64_t { kGreeting = 0, kContribution = 1, kResult = 2 };

uint64_t SlotOf(Stream stream, uint64_t sequence) {
  return sequence * 4 + stream;
}

// What every rank sends to every other at the start of an operation is its
// signature and, of a small operation, which is over with it, what it brings.
// With one peer that moves no more bytes than any other way, and all at once;
// with few it is still sooner over than two steps.
size_t InlineBytesMax(int world) {
  if (world == 2) return size_t{1} << 20;
  return world <= 4 ? size_t{64} << 10 : size_t{4} << 10;
}

// Whole cache lines.
size_t PieceBytes(size_t combined_bytes, int world) {
  const size_t room = kStageBytesMax / 2 / static_cast<size_t>(world);
  return std::min(std::clamp(RoundUp(combined_bytes / 2, size_t{64}),
                             kPieceBytesMin, kPieceBytesMax),
                  std::max(room / 64 * 64, size_t{4096}));
}

Instant InstantAfter(absl::Duration duration) {
  // Gloo adds what is left to a clock of its own: stay far from its end.
  constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 10);
  return std::chrono::steady_clock::now() +
         absl::ToChronoNanoseconds(std::min(duration, kLongest));
}

std::chrono::milliseconds MillisecondsLeft(Instant until) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      until - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

// Gloo puts "[file:line] " in front.
std::string Message(const std::exception& error) {
  const std::string what = error.what();
  const size_t end = what.front() == '[' ? what.find("] ") : std::string::npos;
  return end == std::string::npos ? what : what.substr(end + 2);
}

// Runs `work`, which calls Gloo; its exceptions end here.
template <typename Work>
absl::Status Guard(Work work) {
  try {
    work();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("Gloo: ", Message(error)));
  }
}

// Gloo's rendezvous over an Exchange.  Every rank sets the same keys in the
// same order, "<prefix><its rank>", and then asks for others' keys of that
// prefix: so a Set is an exchange.
class ExchangeStore final : public gloo::rendezvous::Store {
 public:
  ExchangeStore(const GlooCommOptions& options, Exchange& exchange)
      : options_(options),
        exchange_(exchange),
        until_(InstantAfter(options.connect_deadline)) {}

  // Why a call threw; OK when it did not.
  const absl::Status& status() const { return status_; }

  void set(const std::string& key, const std::vector<char>& data) override {
    const std::string prefix = key.substr(0, key.find_first_of("0123456789"));
    absl::StatusOr<std::vector<std::string>> all =
        exchange_(absl::StrCat("gloo/", options_.epoch, "/", prefix),
                  PackAddresses(data, static_cast<size_t>(options_.world) - 1),
                  absl::FromChrono(until_ - std::chrono::steady_clock::now()));
    if (all.ok() && all->size() != static_cast<size_t>(options_.world)) {
      all = absl::InternalError(absl::StrCat("exchange gave ", all->size(),
                                             " blobs for ", options_.world,
                                             " ranks"));
    }
    if (!all.ok()) {
      status_ = all.status();
      throw std::runtime_error("exchange failed");
    }
    for (size_t rank = 0; rank < all->size(); ++rank) {
      absl::StatusOr<std::vector<char>> value = UnpackAddresses((*all)[rank]);
      if (!value.ok()) {
        status_ = value.status();
        throw std::runtime_error("exchange failed");
      }
      values_[absl::StrCat(prefix, rank)] = *std::move(value);
    }
  }

  std::vector<char> get(const std::string& key) override {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      throw std::runtime_error(absl::StrCat("nobody set ", key));
    }
    return found->second;
  }

  // What was exchanged is there.
  void wait(const std::vector<std::string>&) override {}

 private:
  const GlooCommOptions& options_;
  Exchange& exchange_;
  const Instant until_;
  absl::Status status_;
  std::map<std::string, std::vector<char>> values_;
};

// The connections of one communicator, and how all waits on them end at once.
// Thread-compatible, but Revoke is thread-safe.
class Mesh {
 public:
  explicit Mesh(std::shared_ptr<gloo::rendezvous::Context> context)
      : context_(std::move(context)) {}

  gloo::rendezvous::Context& context() { return *context_; }

  bool is_revoked() const { return revoked_.load(); }

  void Revoke() {
    revoked_.store(true);
    {
      MutexLock lock(mutex_);
      for (GlooBuffer* const buffer : waiting_) {
        buffer->abortWaitRecv();
        buffer->abortWaitSend();
      }
    }
    Close();
  }

  // Resets the connections: peers that wait for us learn it at once.
  void Close() {
    MutexLock lock(mutex_);
    for (int peer = 0; peer < context_->size; ++peer) {
      if (peer == context_->rank) continue;
      Guard([&] { context_->getPair(peer)->close(); }).IgnoreError();
    }
  }

  void Register(GlooBuffer* buffer) {
    MutexLock lock(mutex_);
    waiting_.insert(buffer);
  }
  void Unregister(GlooBuffer* buffer) {
    MutexLock lock(mutex_);
    waiting_.erase(buffer);
  }

 private:
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  std::atomic<bool> revoked_{false};
  Mutex mutex_;
  std::set<GlooBuffer*> waiting_ ABSL_GUARDED_BY(mutex_);
};

// Memory that messages leave from and arrive in; counts what is under way.
// Thread-compatible.
class Port {
 public:
  // `mesh` must outlive it, the memory too.
  Port(Mesh& mesh, void* data, size_t bytes)
      : mesh_(mesh), buffer_(mesh.context().createUnboundBuffer(data, bytes)) {
    mesh_.Register(buffer_.get());
  }
  ~Port() { mesh_.Unregister(buffer_.get()); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  absl::Status Send(int peer, uint64_t slot, size_t offset, size_t bytes) {
    ++sends_;
    return Guard([&] { buffer_->send(peer, slot, offset, bytes); });
  }
  absl::Status Receive(int peer, uint64_t slot, size_t offset, size_t bytes) {
    ++receives_;
    return Guard([&] { buffer_->recv(peer, slot, offset, bytes); });
  }

  // One of the receives, in the order they were posted to one peer.
  absl::Status WaitReceive(Instant until) {
    --receives_;
    return Wait(until, [&](auto left) { return buffer_->waitRecv(left); });
  }
  absl::Status WaitAll(Instant until) {
    while (receives_ > 0) COHORT_RETURN_IF_ERROR(WaitReceive(until));
    for (; sends_ > 0; --sends_) {
      COHORT_RETURN_IF_ERROR(
          Wait(until, [&](auto left) { return buffer_->waitSend(left); }));
    }
    return absl::OkStatus();
  }
  absl::Status WaitSend(Instant until) {
    --sends_;
    return Wait(until, [&](auto left) { return buffer_->waitSend(left); });
  }

 private:
  template <typename WaitFor>
  absl::Status Wait(Instant until, WaitFor wait_for) {
    if (mesh_.is_revoked()) return absl::AbortedError("revoked");
    bool completed = false;
    const absl::Status waited =
        Guard([&] { completed = wait_for(MillisecondsLeft(until)); });
    if (waited.ok() && completed) return absl::OkStatus();
    if (mesh_.is_revoked()) return absl::AbortedError("revoked");
    if (std::chrono::steady_clock::now() >= until) {
      return absl::DeadlineExceededError("deadline passed");
    }
    return absl::AbortedError(waited.message());
  }

  Mesh& mesh_;
  const std::unique_ptr<GlooBuffer> buffer_;
  int sends_ = 0;
  int receives_ = 0;
};

struct FreeMemory {
  void operator()(std::byte* data) const { std::free(data); }
};
using Memory = std::unique_ptr<std::byte[], FreeMemory>;

Memory AllocateAligned(size_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t padded = RoundUp(std::max(bytes, size_t{1}), kAlignment);
  if (padded < bytes) return nullptr;
  Memory memory(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, padded)));
  if (memory != nullptr) std::memset(memory.get(), 0, padded);
  return memory;
}

// Some bytes of a buffer of a call.
struct Piece {
  size_t buffer = 0;
  size_t begin = 0;
  size_t end = 0;

  size_t bytes() const { return end - begin; }
};

// Every rank greets every other with what it is about to do.  Then, for large
// buffers, each rank owns a range of each: it receives that range from all
// others, combines in rank order, and sends the result to all.  As many bytes
// as a ring moves, in two steps, and the same bits as in shared memory.
class GlooComm final : public Comm {
 public:
  GlooComm(const Identity& identity,
           std::shared_ptr<gloo::rendezvous::Context> context)
      : Comm(identity),
        mesh_(std::move(context)),
        greeting_bytes_(sizeof(Signature) + InlineBytesMax(identity.world)),
        received_(identity.world),
        sent_(identity.world) {}

  ~GlooComm() override {
    if (world() == 1 || sequence() == 0) return;
    if (is_over() || mesh_.is_revoked() || !awaiting_.ok()) return;
    // Closing a socket may drop what is on its way: leave when all are done, or
    // after a moment.
    const Call leave = {.kind = Kind::kLeave, .sequence = sequence() + 1};
    const Instant until = InstantAfter(kLeaveDeadline);
    if (Greet(leave).ok()) AwaitGreeted(leave, until).IgnoreError();
  }

  // Once, before the first operation.
  absl::Status Open() {
    greetings_ =
        AllocateAligned(greeting_bytes_ * static_cast<size_t>(world()));
    if (greetings_ == nullptr) {
      return absl::ResourceExhaustedError("no memory for messages of peers");
    }
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      received_[peer] =
          std::make_unique<Port>(mesh_, GreetingOf(peer), greeting_bytes_);
      sent_[peer] =
          std::make_unique<Port>(mesh_, GreetingOf(rank()), greeting_bytes_);
    }
    return AwaitGreetings(1);
  }

  absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) override {
    Memory memory = AllocateAligned(bytes);
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory of ", bytes, " bytes"));
    }
    allocated_.push_back(std::move(memory));
    return std::span(allocated_.back().get(), bytes);
  }

  absl::Status CheckPeers() const override {
    if (mesh_.is_revoked()) return absl::AbortedError("revoked");
    return awaiting_;
  }

  void Revoke() override { mesh_.Revoke(); }

 private:
  // What is under way of an operation on large buffers.
  struct Transfer {
    const Call& call;
    const Instant until;
    std::vector<std::unique_ptr<Port>> ports = {};   // by buffer
    std::vector<std::unique_ptr<Port>> stages = {};  // by peer
    size_t piece_bytes = 0;
    std::vector<Piece> own = {};  // what this rank combines
  };

  absl::Status Run(const Call& call) override {
    const absl::Status done = RunUntil(call, InstantAfter(call.deadline));
    if (done.ok() || absl::IsInvalidArgument(done)) return done;
    // Nothing may write to the caller's memory after this.
    mesh_.Close();
    if (mesh_.is_revoked()) {
      return absl::AbortedError(absl::StrCat("epoch ", epoch(), " is revoked"));
    }
    if (absl::IsDeadlineExceeded(done)) return done;
    return absl::AbortedError(done.message());
  }

  absl::Status RunUntil(const Call& call, Instant until) {
    if (mesh_.is_revoked()) return absl::AbortedError("revoked");
    if (world() == 1) return absl::OkStatus();
    COHORT_RETURN_IF_ERROR(awaiting_);
    COHORT_RETURN_IF_ERROR(Greet(call));
    // Asked for before peers know that they may send, which they do once they
    // have compared: so no message waits for its room.
    Transfer transfer{.call = call, .until = until};
    const bool is_inline = IsInline(call);
    if (!is_inline) COHORT_RETURN_IF_ERROR(Receive(transfer));
    COHORT_RETURN_IF_ERROR(AwaitGreeted(call, until));
    const absl::Status alike = Compare(call);
    if (alike.ok() && is_inline) FinishInline(call);
    // Only now may the next greetings overwrite these.  A peer that is gone has
    // done its part of this operation, not of the next.
    awaiting_ = AwaitGreetings(call.sequence + 1);
    return alike.ok() && !is_inline ? Move(transfer) : alike;
  }

  // ---- greetings

  std::byte* GreetingOf(int peer) const {
    return greetings_.get() + greeting_bytes_ * static_cast<size_t>(peer);
  }
  std::byte* InlineOf(int peer) const {
    return GreetingOf(peer) + sizeof(Signature);
  }

  // What a rank brings to the call, packed.
  std::vector<Buffer> Brought(const Call& call, int peer) const {
    if (call.kind == Kind::kBroadcast && call.root != peer) return {};
    std::vector<Buffer> brought(call.buffers.begin(), call.buffers.end());
    if (call.kind != Kind::kAllGather) return brought;
    for (Buffer& buffer : brought) {
      buffer = PartOf(buffer, BlockOf(buffer, peer, world()));
    }
    return brought;
  }

  bool IsInline(const Call& call) const {
    const int from = call.kind == Kind::kBroadcast ? call.root : rank();
    return PackedBytes(Brought(call, from)) <= InlineBytesMax(world());
  }

  // So that a peer's greeting never has to wait for us to ask for it.
  absl::Status AwaitGreetings(uint64_t sequence) {
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(received_[peer]->Receive(
          peer, SlotOf(kGreeting, sequence), 0, greeting_bytes_));
    }
    return absl::OkStatus();
  }

  absl::Status Greet(const Call& call) {
    const Signature mine = Sign(call, epoch());
    std::memcpy(GreetingOf(rank()), &mine, sizeof(mine));
    size_t bytes = sizeof(mine);
    if (IsInline(call)) {
      const std::vector<Buffer> brought = Brought(call, rank());
      Pack(brought, InlineOf(rank()));
      bytes += PackedBytes(brought);
    }
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(
          sent_[peer]->Send(peer, SlotOf(kGreeting, call.sequence), 0, bytes));
    }
    return absl::OkStatus();
  }

  absl::Status AwaitGreeted(const Call& call, Instant until) {
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      const absl::Status greeted = received_[peer]->WaitReceive(until);
      if (absl::IsDeadlineExceeded(greeted)) return Missing(call, peer);
      COHORT_RETURN_IF_ERROR(
          Annotate(greeted, absl::StrCat("waiting for rank ", peer)));
    }
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(sent_[peer]->WaitSend(until));
    }
    return absl::OkStatus();
  }

  // The deadline passed while waiting for `first`: who else has not greeted?
  absl::Status Missing(const Call& call, int first) {
    std::vector<int> missing = {first};
    const Instant now = std::chrono::steady_clock::now();
    for (int peer = first + 1; peer < world(); ++peer) {
      if (peer == rank()) continue;
      // What has arrived is still there, and the rest fails at once.
      if (!received_[peer]->WaitReceive(now).ok()) missing.push_back(peer);
    }
    return NotArrived(call, std::move(missing));
  }

  absl::Status Compare(const Call& call) const {
    const Signature mine = Sign(call, epoch());
    for (int peer = 0; peer < world(); ++peer) {
      Signature theirs;
      std::memcpy(&theirs, GreetingOf(peer), sizeof(theirs));
      if (theirs.kind == static_cast<uint32_t>(Kind::kLeave)) {
        return absl::AbortedError(absl::StrCat("rank ", peer, " left"));
      }
      COHORT_RETURN_IF_ERROR(CheckAlike(mine, peer, theirs));
    }
    return absl::OkStatus();
  }

  void FinishInline(const Call& call) {
    if (call.kind == Kind::kBroadcast || call.kind == Kind::kAllGather) {
      for (int peer = 0; peer < world(); ++peer) {
        if (peer != rank()) Unpack(InlineOf(peer), Brought(call, peer));
      }
      return;
    }
    std::vector<const std::byte*> packs(world());
    for (int peer = 0; peer < world(); ++peer) packs[peer] = InlineOf(peer);
    ReducePacked(call, packs);
  }

  // ---- large buffers

  static std::byte* BytesOf(const Buffer& buffer) {
    return static_cast<std::byte*>(buffer.data);
  }

  // The range of each buffer that `owner` combines, or brings, in bytes.
  std::vector<Piece> RangesOf(const Call& call, int owner) const {
    std::vector<Piece> ranges;
    for (size_t i = 0; i < call.buffers.size(); ++i) {
      const Buffer& buffer = call.buffers[i];
      const Range range = CombinedRange(call, buffer, owner, world());
      if (range.empty()) continue;
      const size_t size = SizeOf(buffer.dtype);
      ranges.push_back({i, range.begin * size, range.end * size});
    }
    return ranges;
  }

  // The same, cut.
  std::vector<Piece> PiecesOf(const Transfer& transfer, int owner) const {
    std::vector<Piece> pieces;
    for (const Piece& range : RangesOf(transfer.call, owner)) {
      for (size_t at = range.begin; at < range.end;
           at += transfer.piece_bytes) {
        pieces.push_back(
            {range.buffer, at, std::min(range.end, at + transfer.piece_bytes)});
      }
    }
    return pieces;
  }

  // Asks for all that this rank receives.
  absl::Status Receive(Transfer& transfer) {
    const Call& call = transfer.call;
    for (const Buffer& buffer : call.buffers) {
      transfer.ports.push_back(
          std::make_unique<Port>(mesh_, buffer.data, buffer.bytes()));
    }
    const bool reduces =
        call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter;
    if (reduces) COHORT_RETURN_IF_ERROR(ReceiveContributions(transfer));
    if (call.kind == Kind::kReduceScatter) return absl::OkStatus();
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      if (call.kind == Kind::kBroadcast && peer != call.root) continue;
      for (const Piece& piece : Results(transfer, peer)) {
        COHORT_RETURN_IF_ERROR(transfer.ports[piece.buffer]->Receive(
            peer, SlotOf(kResult, call.sequence), piece.begin, piece.bytes()));
      }
    }
    return absl::OkStatus();
  }

  // What `owner` sends to all at last.
  std::vector<Piece> Results(const Transfer& transfer, int owner) const {
    const Call& call = transfer.call;
    if (call.kind == Kind::kAllReduce) return PiecesOf(transfer, owner);
    if (call.kind != Kind::kBroadcast) return RangesOf(call, owner);
    std::vector<Piece> whole;
    for (size_t i = 0; i < call.buffers.size(); ++i) {
      if (call.buffers[i].count == 0) continue;
      whole.push_back({i, 0, call.buffers[i].bytes()});
    }
    return whole;
  }

  absl::Status ReceiveContributions(Transfer& transfer) {
    size_t largest = 0;
    for (const Buffer& buffer : transfer.call.buffers) {
      const Range range = CombinedRange(transfer.call, buffer, 0, world());
      largest =
          std::max(largest, (range.end - range.begin) * SizeOf(buffer.dtype));
    }
    transfer.piece_bytes = PieceBytes(largest, world());
    transfer.own = PiecesOf(transfer, rank());
    if (transfer.own.empty()) return absl::OkStatus();
    const size_t room = 2 * transfer.piece_bytes;
    const size_t needed = room * static_cast<size_t>(world());
    if (stage_bytes_ < needed) {
      stage_ = AllocateAligned(needed);
      stage_bytes_ = stage_ == nullptr ? 0 : needed;
    }
    if (stage_ == nullptr) return absl::AbortedError("no memory to stage");
    transfer.stages.resize(world());
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      transfer.stages[peer] =
          std::make_unique<Port>(mesh_, stage_.get() + room * peer, room);
    }
    COHORT_RETURN_IF_ERROR(ReceivePiece(transfer, 0));
    return ReceivePiece(transfer, 1);
  }

  absl::Status ReceivePiece(Transfer& transfer, size_t index) {
    if (index >= transfer.own.size()) return absl::OkStatus();
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(transfer.stages[peer]->Receive(
          peer, SlotOf(kContribution, transfer.call.sequence),
          index % 2 * transfer.piece_bytes, transfer.own[index].bytes()));
    }
    return absl::OkStatus();
  }

  absl::Status Move(Transfer& transfer) {
    const Call& call = transfer.call;
    if (call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter) {
      COHORT_RETURN_IF_ERROR(SendContributions(transfer));
      for (size_t index = 0; index < transfer.own.size(); ++index) {
        COHORT_RETURN_IF_ERROR(Combine(transfer, index));
      }
    } else if (call.kind == Kind::kAllGather || call.root == rank()) {
      for (const Piece& piece : Results(transfer, rank())) {
        COHORT_RETURN_IF_ERROR(SendResult(transfer, piece));
      }
    }
    for (const std::unique_ptr<Port>& port : transfer.ports) {
      COHORT_RETURN_IF_ERROR(
          Annotate(port->WaitAll(transfer.until), "moving data"));
    }
    return absl::OkStatus();
  }

  // A piece of the result is sent by its owner after it has our contribution to
  // it, so the two never meet in memory.
  absl::Status SendContributions(Transfer& transfer) {
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      for (const Piece& piece : PiecesOf(transfer, peer)) {
        COHORT_RETURN_IF_ERROR(transfer.ports[piece.buffer]->Send(
            peer, SlotOf(kContribution, transfer.call.sequence), piece.begin,
            piece.bytes()));
      }
    }
    return absl::OkStatus();
  }

  // Two pieces of each peer are under way: one is combined while the other
  // arrives.
  absl::Status Combine(Transfer& transfer, size_t index) {
    const Piece& piece = transfer.own[index];
    const Buffer& buffer = transfer.call.buffers[piece.buffer];
    std::byte* const own = BytesOf(buffer) + piece.begin;
    std::vector<const std::byte*> sources(world(), own);
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      sources[peer] =
          stage_.get() + (2 * peer + index % 2) * transfer.piece_bytes;
      COHORT_RETURN_IF_ERROR(
          Annotate(transfer.stages[peer]->WaitReceive(transfer.until),
                   absl::StrCat("waiting for data of rank ", peer)));
    }
    Reduce({.dtype = buffer.dtype,
            .op = transfer.call.op,
            .sources = sources,
            .destinations = std::span(&own, 1),
            .mean_of = transfer.call.mean_of},
           0, piece.bytes() / SizeOf(buffer.dtype));
    COHORT_RETURN_IF_ERROR(ReceivePiece(transfer, index + 2));
    if (transfer.call.kind == Kind::kReduceScatter) return absl::OkStatus();
    return SendResult(transfer, piece);
  }

  absl::Status SendResult(Transfer& transfer, const Piece& piece) {
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(transfer.ports[piece.buffer]->Send(
          peer, SlotOf(kResult, transfer.call.sequence), piece.begin,
          piece.bytes()));
    }
    return absl::OkStatus();
  }

  std::vector<Memory> allocated_;
  Memory stage_;
  size_t stage_bytes_ = 0;
  Memory greetings_;  // by rank; this rank's own is what it sends
  Mesh mesh_;
  const size_t greeting_bytes_;
  std::vector<std::unique_ptr<Port>> received_;
  std::vector<std::unique_ptr<Port>> sent_;
  // Whether the next greetings can arrive.
  absl::Status awaiting_;
};

void IgnoreBrokenPipes() {
  struct sigaction action = {};
  if (sigaction(SIGPIPE, nullptr, &action) == 0 &&
      (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_DFL) {
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, nullptr);
  }
}

absl::Status Validate(const GlooCommOptions& options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", options.rank, " in a world of ", options.world));
  }
  if (options.connect_deadline <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError("no time to connect");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Comm>> ConnectGloo(
    const GlooCommOptions& options, Exchange& exchange) {
  COHORT_RETURN_IF_ERROR(Validate(options));
  auto context =
      std::make_shared<gloo::rendezvous::Context>(options.rank, options.world);
  const Instant until = InstantAfter(options.connect_deadline);
  if (options.world > 1) {
    IgnoreBrokenPipes();
    ExchangeStore store(options, exchange);
    const absl::Status connected = Guard([&] {
      gloo::transport::tcp::attr attr;
      if (options.interface.empty()) {
        attr.hostname = options.hostname;
      } else {
        attr.iface = options.interface;
      }
      std::shared_ptr<gloo::transport::Device> device =
          gloo::transport::tcp::CreateDevice(attr);
      // Gloo waits five times its timeout for each connection.
      context->setTimeout(
          std::max(MillisecondsLeft(until) / 5, std::chrono::milliseconds(1)));
      context->connectFullMesh(store, device);
    });
    COHORT_RETURN_IF_ERROR(store.status());
    if (!connected.ok()) {
      return std::chrono::steady_clock::now() >= until
                 ? absl::DeadlineExceededError(connected.message())
                 : connected;
    }
  }
  auto comm = std::make_unique<GlooComm>(
      Comm::Identity{
          .rank = options.rank, .world = options.world, .epoch = options.epoch},
      std::move(context));
  COHORT_RETURN_IF_ERROR(comm->Open());
  return comm;
}

}  // namespace cohort::trainer
