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
#include "absl/strings/str_join.h"

#include "common/mutex.h"
#include "common/round_up.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/reduce.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

using Instant = std::chrono::steady_clock::time_point;
using GlooBuffer = gloo::transport::UnboundBuffer;

// Large buffers travel in pieces, so that combining one overlaps with receiving
// the next.
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kInlineBytesMax = 4096 - sizeof(Signature);
// How long a communicator that is done waits for the last bytes to reach peers
// that are not.
constexpr absl::Duration kLeaveDeadline = absl::Seconds(1);

// Gloo's word for the streams of messages between two ranks.
enum Slot : uint64_t { kGreeting = 1, kContribution = 2, kResult = 3 };

// What every rank sends to every other at the start of an operation; a small
// operation is over with it.
struct Greeting {
  Signature signature;
  alignas(8) std::byte inline_bytes[kInlineBytesMax];
};
static_assert(sizeof(Greeting) == 4096);

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
                  std::string(data.begin(), data.end()),
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
      values_[absl::StrCat(prefix, rank)] = (*all)[rank];
    }
  }

  std::vector<char> get(const std::string& key) override {
    const auto found = values_.find(key);
    if (found == values_.end()) {
      throw std::runtime_error(absl::StrCat("nobody set ", key));
    }
    return {found->second.begin(), found->second.end()};
  }

  // What was exchanged is there.
  void wait(const std::vector<std::string>&) override {}

 private:
  const GlooCommOptions& options_;
  Exchange& exchange_;
  const Instant until_;
  absl::Status status_;
  std::map<std::string, std::string> values_;
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

  absl::Status Send(int peer, Slot slot, size_t offset, size_t bytes) {
    ++sends_;
    return Guard([&] { buffer_->send(peer, slot, offset, bytes); });
  }
  absl::Status Receive(int peer, Slot slot, size_t offset, size_t bytes) {
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

// Every rank greets every other with what it is about to do.  Then, for a large
// buffer, each rank owns a range: it receives that range from all others,
// combines in rank order, and sends the result to all.  As many bytes as a ring
// moves, in two steps, and the same bits as in shared memory.
class GlooComm final : public Comm {
 public:
  GlooComm(const Identity& identity,
           std::shared_ptr<gloo::rendezvous::Context> context)
      : Comm(identity),
        mesh_(std::move(context)),
        greetings_(identity.world),
        received_(identity.world),
        sent_(identity.world) {
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      received_[peer] =
          std::make_unique<Port>(mesh_, &greetings_[peer], sizeof(Greeting));
      sent_[peer] =
          std::make_unique<Port>(mesh_, &greetings_[rank()], sizeof(Greeting));
    }
  }

  ~GlooComm() override {
    if (world() == 1 || sequence() == 0) return;
    if (is_over() || mesh_.is_revoked() || !awaiting_.ok()) return;
    // Closing a socket may drop what is on its way: leave when all are done, or
    // after a moment.
    const Call leave = {.kind = Kind::kLeave, .sequence = sequence()};
    Greet(leave, InstantAfter(kLeaveDeadline)).IgnoreError();
  }

  // So that a peer's greeting never has to wait for us to ask for it.
  absl::Status AwaitGreetings() {
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(
          received_[peer]->Receive(peer, kGreeting, 0, sizeof(Greeting)));
    }
    return absl::OkStatus();
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

  void Revoke() override { mesh_.Revoke(); }

 private:
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
    COHORT_RETURN_IF_ERROR(Greet(call, until));
    absl::Status done = Compare(call);
    const bool is_inline = PackedBytes(call.buffers) <= kInlineBytesMax;
    if (done.ok() && is_inline) FinishInline(call);
    // Only now may the next greetings overwrite these.  A peer that is gone has
    // done its part of this operation, not of the next.
    awaiting_ = AwaitGreetings();
    if (!done.ok() || is_inline) return done;
    for (const Buffer& buffer : call.buffers) {
      if (buffer.count == 0) continue;
      COHORT_RETURN_IF_ERROR(Move(call, buffer, until));
    }
    return absl::OkStatus();
  }

  absl::Status Greet(const Call& call, Instant until) {
    Greeting& mine = greetings_[rank()];
    mine.signature = Sign(call, epoch());
    if (PackedBytes(call.buffers) <= kInlineBytesMax) {
      Pack(call.buffers, mine.inline_bytes);
    }
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(
          sent_[peer]->Send(peer, kGreeting, 0, sizeof(Greeting)));
    }
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
    return absl::DeadlineExceededError(
        absl::StrCat("not arrived within ", absl::FormatDuration(call.deadline),
                     ": rank(s) ", absl::StrJoin(missing, ", ")));
  }

  absl::Status Compare(const Call& call) const {
    const Signature mine = Sign(call, epoch());
    for (int peer = 0; peer < world(); ++peer) {
      const Signature& theirs = greetings_[peer].signature;
      if (theirs.kind == static_cast<uint32_t>(Kind::kLeave)) {
        return absl::AbortedError(absl::StrCat("rank ", peer, " left"));
      }
      COHORT_RETURN_IF_ERROR(CheckAlike(mine, peer, theirs));
    }
    return absl::OkStatus();
  }

  absl::Status Move(const Call& call, const Buffer& buffer, Instant until) {
    switch (call.kind) {
      case Kind::kAllReduce:
      case Kind::kReduceScatter:
        return ReduceBuffer(call, buffer, until);
      case Kind::kBroadcast:
        return BroadcastBuffer(buffer, call.root, until);
      case Kind::kAllGather:
        return GatherBuffer(buffer, until);
      case Kind::kBarrier:
      case Kind::kLeave:
        break;
    }
    return absl::OkStatus();
  }

  void GatherInline(const Call& call) {
    size_t offset = 0;
    for (const Buffer& buffer : call.buffers) {
      const size_t size = SizeOf(buffer.dtype);
      for (int peer = 0; peer < world(); ++peer) {
        const Range block = BlockOf(buffer, peer, world());
        if (peer == rank() || block.empty()) continue;
        std::memcpy(static_cast<std::byte*>(buffer.data) + block.begin * size,
                    greetings_[peer].inline_bytes + offset + block.begin * size,
                    (block.end - block.begin) * size);
      }
      offset += PackedBytes(buffer);
    }
  }

  void FinishInline(const Call& call) {
    if (call.kind == Kind::kBroadcast) {
      Unpack(greetings_[call.root].inline_bytes, call.buffers);
      return;
    }
    if (call.kind == Kind::kAllGather) return GatherInline(call);
    std::vector<const std::byte*> sources(world());
    size_t offset = 0;
    for (const Buffer& buffer : call.buffers) {
      for (int peer = 0; peer < world(); ++peer) {
        sources[peer] = greetings_[peer].inline_bytes + offset;
      }
      std::byte* const to = static_cast<std::byte*>(buffer.data);
      Reduce({.dtype = buffer.dtype,
              .op = call.op,
              .sources = sources,
              .destinations = std::span(&to, 1)},
             0, buffer.count);
      offset += PackedBytes(buffer);
    }
  }

  absl::Status BroadcastBuffer(const Buffer& buffer, int root, Instant until) {
    Port port(mesh_, buffer.data, buffer.bytes());
    if (rank() != root) {
      COHORT_RETURN_IF_ERROR(port.Receive(root, kResult, 0, buffer.bytes()));
    } else {
      for (int peer = 0; peer < world(); ++peer) {
        if (peer == rank()) continue;
        COHORT_RETURN_IF_ERROR(port.Send(peer, kResult, 0, buffer.bytes()));
      }
    }
    return Annotate(port.WaitAll(until), "moving data");
  }

  // Each sends its block to all, which have no memory of it in use.
  absl::Status GatherBuffer(const Buffer& buffer, Instant until) {
    Port port(mesh_, buffer.data, buffer.bytes());
    const size_t size = SizeOf(buffer.dtype);
    const Range mine = BlockOf(buffer, rank(), world());
    const size_t bytes = (mine.end - mine.begin) * size;
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      COHORT_RETURN_IF_ERROR(port.Receive(
          peer, kResult, BlockOf(buffer, peer, world()).begin * size, bytes));
      COHORT_RETURN_IF_ERROR(
          port.Send(peer, kResult, mine.begin * size, bytes));
    }
    return Annotate(port.WaitAll(until), "moving data");
  }

  absl::Status ReduceBuffer(const Call& call, const Buffer& buffer,
                            Instant until) {
    Port port(mesh_, buffer.data, buffer.bytes());
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      // A piece of the result is sent by its owner after it has our
      // contribution to it, so the two never meet in memory.
      for (const Range piece : Pieces(call, buffer, peer)) {
        const size_t bytes = piece.end - piece.begin;
        COHORT_RETURN_IF_ERROR(
            port.Send(peer, kContribution, piece.begin, bytes));
        if (call.kind == Kind::kReduceScatter) continue;
        COHORT_RETURN_IF_ERROR(port.Receive(peer, kResult, piece.begin, bytes));
      }
    }
    COHORT_RETURN_IF_ERROR(CombineOwnRange(call, buffer, port, until));
    return Annotate(port.WaitAll(until), "moving data");
  }

  // The pieces of the range that `owner` combines, in bytes.
  std::vector<Range> Pieces(const Call& call, const Buffer& buffer,
                            int owner) const {
    const Range range = CombinedRange(call, buffer, owner, world());
    const size_t size = SizeOf(buffer.dtype);
    std::vector<Range> pieces;
    for (size_t at = range.begin * size; at < range.end * size;
         at += kPieceBytes) {
      pieces.push_back({at, std::min(range.end * size, at + kPieceBytes)});
    }
    return pieces;
  }

  // Two pieces of each peer are under way: one is combined while the other
  // arrives.
  absl::Status CombineOwnRange(const Call& call, const Buffer& buffer,
                               Port& port, Instant until) {
    const std::vector<Range> pieces = Pieces(call, buffer, rank());
    if (pieces.empty()) return absl::OkStatus();
    if (stage_ == nullptr) stage_ = AllocateAligned(2 * kPieceBytes * world());
    if (stage_ == nullptr) return absl::AbortedError("no memory to stage");
    std::vector<std::unique_ptr<Port>> stages(world());
    for (int peer = 0; peer < world(); ++peer) {
      if (peer == rank()) continue;
      stages[peer] = std::make_unique<Port>(
          mesh_, stage_.get() + 2 * kPieceBytes * peer, 2 * kPieceBytes);
    }
    const auto receive = [&](size_t index) -> absl::Status {
      if (index >= pieces.size()) return absl::OkStatus();
      for (int peer = 0; peer < world(); ++peer) {
        if (peer == rank()) continue;
        COHORT_RETURN_IF_ERROR(
            stages[peer]->Receive(peer, kContribution, index % 2 * kPieceBytes,
                                  pieces[index].end - pieces[index].begin));
      }
      return absl::OkStatus();
    };
    COHORT_RETURN_IF_ERROR(receive(0));
    COHORT_RETURN_IF_ERROR(receive(1));
    std::vector<const std::byte*> sources(world());
    for (size_t index = 0; index < pieces.size(); ++index) {
      const Range piece = pieces[index];
      std::byte* const own = static_cast<std::byte*>(buffer.data) + piece.begin;
      for (int peer = 0; peer < world(); ++peer) {
        sources[peer] = own;
        if (peer == rank()) continue;
        sources[peer] = stage_.get() + (2 * peer + index % 2) * kPieceBytes;
        COHORT_RETURN_IF_ERROR(
            Annotate(stages[peer]->WaitReceive(until),
                     absl::StrCat("waiting for data of rank ", peer)));
      }
      Reduce({.dtype = buffer.dtype,
              .op = call.op,
              .sources = sources,
              .destinations = std::span(&own, 1)},
             0, (piece.end - piece.begin) / SizeOf(buffer.dtype));
      COHORT_RETURN_IF_ERROR(receive(index + 2));
      if (call.kind == Kind::kReduceScatter) continue;
      for (int peer = 0; peer < world(); ++peer) {
        if (peer == rank()) continue;
        COHORT_RETURN_IF_ERROR(
            port.Send(peer, kResult, piece.begin, piece.end - piece.begin));
      }
    }
    return absl::OkStatus();
  }

  std::vector<Memory> allocated_;
  Memory stage_;
  Mesh mesh_;
  // By rank; this rank's own is what it sends.
  std::vector<Greeting> greetings_;
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
  COHORT_RETURN_IF_ERROR(comm->AwaitGreetings());
  return comm;
}

}  // namespace cohort::trainer
