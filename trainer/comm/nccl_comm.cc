#include "trainer/comm/nccl_comm.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "common/log.h"
#include "common/real_clock.h"
#include "common/status_macros.h"
#include "common/status_util.h"
#include "trainer/comm/signature.h"

namespace cohort::trainer {
namespace {

// More shapes than a model has; all ranks forget them at the same call.
constexpr size_t kAgreedMax = 4096;

absl::Duration Now() { return MachineClock().Monotonic(); }

// What a rank says of itself before anything is connected.
struct Offer {
  int version = 0;  // 0: it cannot, see `reason`
  std::string gpu = {};
  std::string unique_id = {};  // rank 0's
  std::string reason = {};
};

std::string Encode(const Offer& offer) {
  return absl::StrCat(offer.version, "\n", offer.gpu, "\n",
                      absl::Base64Escape(offer.unique_id), "\n",
                      offer.reason);
}

absl::StatusOr<Offer> Decode(const std::string& text) {
  const std::vector<std::string> fields =
      absl::StrSplit(text, absl::MaxSplits('\n', 3));
  Offer offer;
  if (fields.size() != 4 || !absl::SimpleAtoi(fields[0], &offer.version)) {
    return absl::InternalError("an offer of another build");
  }
  offer.gpu = fields[1];
  if (!absl::Base64Unescape(fields[2], &offer.unique_id)) {
    return absl::InternalError("an offer whose unique id is garbled");
  }
  offer.reason = fields[3];
  return offer;
}

// FAILED_PRECONDITION where the gang cannot use NCCL.
absl::Status Judge(const std::vector<Offer>& offers) {
  std::map<std::string, size_t> ranks;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer& offer = offers[rank];
    if (offer.version == 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, ": ", offer.reason));
    }
    // What NCCL calls "Duplicate GPU detected".
    const auto [first, is_new] = ranks.try_emplace(offer.gpu, rank);
    if (!is_new) {
      return absl::FailedPreconditionError(
          absl::StrCat("ranks ", first->second, " and ", rank, " share ",
                       offer.gpu, ", and NCCL takes one rank a GPU"));
    }
    if (offer.version != offers[0].version) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank 0 has NCCL ", nccl::VersionText(offers[0].version),
                       ", rank ", rank, " ", nccl::VersionText(offer.version)));
    }
  }
  if (offers[0].unique_id.size() != sizeof(nccl::UniqueId)) {
    return absl::InternalError("rank 0 sent no unique id");
  }
  return absl::OkStatus();
}

// What a call is but for when.
std::string ShapeOf(Signature signature) {
  signature.sequence = 0;
  return std::string(reinterpret_cast<const char*>(&signature),
                     sizeof(signature));
}

// What each rank shows the others in the exchange of a call.  Between processes
// of one build.
struct Post {
  Signature signature;
  uint64_t unregistered = 0;  // hash of sizes
  uint64_t is_launched = 0;
};
constexpr size_t kPostWords = sizeof(Post) / sizeof(int64_t);
static_assert(sizeof(Post) == kPostWords * sizeof(int64_t));
static_assert(std::is_trivially_copyable_v<Post>);

uint64_t HashOf(const std::vector<uint64_t>& sizes) {
  uint64_t hash = 0;
  for (const uint64_t size : sizes) {
    hash = (hash ^ (size + 1)) * 1099511628211u;
  }
  return hash;
}

bool LeavesUsable(const absl::Status& status) {
  return status.ok() || absl::IsInvalidArgument(status) ||
         absl::IsResourceExhausted(status);
}

void KillProcess(absl::string_view) { kill(getpid(), SIGKILL); }

OwnerThread::Options OwnerOptions(const Comm::Identity& identity,
                                  NcclCommunicator& communicator,
                                  const NcclCommOptions& options) {
  auto kill_process = options.kill
                          ? options.kill
                          : std::function<void(absl::string_view)>(KillProcess);
  return {
      .quiet =
          [&communicator](OwnerThread& owner) {
            communicator.Quiet(owner, owner.ended().message());
          },
      .close =
          [&communicator](OwnerThread& owner) { communicator.Close(owner); },
      .deadline = options.deadlines.quiet,
      .kill =
          [identity, kill_process](absl::string_view hangs_in) {
            COHORT_LOG(kError, "nccl_stuck", {"rank", identity.rank},
                       {"epoch", identity.epoch}, {"in", hangs_in});
            kill_process(absl::StrCat("rank ", identity.rank, " of epoch ",
                                      identity.epoch, " hangs in ", hangs_in));
          },
  };
}

}  // namespace

NcclCommOptions NcclOfThisMachine() {
  NcclCommOptions options;
  const char* const granted = std::getenv("CUDA_VISIBLE_DEVICES");
  if (granted != nullptr && *granted == '\0') {
    options.driver = absl::FailedPreconditionError(
        "no GPU was granted: CUDA_VISIBLE_DEVICES is empty");
    return options;
  }
  options.driver = cuda::LoadDriver();
  options.nccl = nccl::LoadLibrary();
  return options;
}

NcclComm::NcclComm(const Identity& identity, NcclCommOptions options,
                   Comm& control)
    : Comm(identity),
      deadlines_(options.deadlines),
      control_(control),
      ordinal_(options.device),
      communicator_(std::make_unique<NcclCommunicator>(
          identity, options.driver.ok() ? *options.driver : nullptr,
          options.nccl.ok() ? *options.nccl : nullptr, options.deadlines)),
      library_(options.nccl),
      driver_found_(options.driver.status()),
      owner_(std::make_unique<OwnerThread>(
          OwnerOptions(identity, *communicator_, options))) {}

absl::StatusOr<std::unique_ptr<NcclComm>> NcclComm::Connect(
    NcclCommOptions options, Comm& control, Exchange& exchange) {
  const absl::Duration until = Now() + options.connect_deadline;
  std::unique_ptr<NcclComm> comm(new NcclComm({.rank = control.rank(),
                                               .world = control.world(),
                                               .epoch = control.epoch()},
                                              std::move(options), control));
  const absl::Status connected = comm->ConnectUntil(until, exchange);
  if (connected.ok()) return comm;
  comm->owner_->End(connected.message());
  return connected;
}

NcclComm::~NcclComm() {
  if (owner_->ended().ok()) {
    const auto finished = owner_->Post(
        [this](OwnerThread& owner) { return communicator_->Finish(owner); });
    const absl::Status done =
        Await(*finished, Now() + deadlines_.finish, "taking leave");
    if (!done.ok()) owner_->End(done.message());
  }
  owner_.reset();
}

absl::Status NcclComm::ConnectUntil(absl::Duration until, Exchange& exchange) {
  // What the owner found out; shared with it, since it may come back later.
  auto offer = std::make_shared<Offer>();
  absl::Status ready = driver_found_;
  if (ready.ok()) ready = library_.status();
  if (ready.ok()) {
    const auto opened = owner_->Post([this, offer](OwnerThread& owner) {
      COHORT_RETURN_IF_ERROR(communicator_->Open(owner, ordinal_));
      offer->gpu = communicator_->device().uuid();
      if (rank() == 0) {
        COHORT_ASSIGN_OR_RETURN(const nccl::UniqueId id,
                                communicator_->NewId(owner));
        offer->unique_id.assign(id.internal, sizeof(id.internal));
      }
      return absl::OkStatus();
    });
    ready = Await(*opened, until, "taking the GPU");
  }
  const Offer mine = ready.ok() ? Offer{.version = (*library_)->version,
                                        .gpu = offer->gpu,
                                        .unique_id = offer->unique_id}
                                : Offer{.reason = std::string(ready.message())};
  // NC-8: under the epoch's name.
  COHORT_ASSIGN_OR_RETURN(
      const std::vector<std::string> words,
      exchange(absl::StrCat("nccl/", epoch()), Encode(mine), until - Now()));
  if (words.size() != static_cast<size_t>(world())) {
    return absl::InternalError(absl::StrCat("exchange gave ", words.size(),
                                            " blobs for ", world(), " ranks"));
  }
  std::vector<Offer> offers;
  for (const std::string& text : words) {
    COHORT_ASSIGN_OR_RETURN(offers.emplace_back(), Decode(text));
  }
  // NC-9: every rank judges the same words.
  if (const absl::Status judged = Judge(offers); !judged.ok()) {
    return absl::IsFailedPrecondition(judged) ? SetReason(judged, kNcclUnusable)
                                              : judged;
  }

  nccl::UniqueId id = {};
  std::memcpy(id.internal, offers[0].unique_id.data(), sizeof(id.internal));
  const auto connected = owner_->Post([this, id](OwnerThread& owner) {
    return communicator_->Init(owner, id);
  });
  const absl::Status done = Await(*connected, until, "connecting with NCCL");
  if (!done.ok()) {
    // Those who are still connecting shall not wait for this rank.
    control_.Revoke();
    return done;
  }
  description_ =
      absl::StrCat("NCCL ", nccl::VersionText(mine.version), " on ", mine.gpu);
  return absl::OkStatus();
}

absl::Status NcclComm::Await(const OwnerThread::Job& job, absl::Duration until,
                             absl::string_view what) const {
  const absl::Status done =
      owner_->Await(job, until, [this] { return control_.CheckPeers(); });
  if (!absl::IsDeadlineExceeded(done)) return done;
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", rank(), " on its GPU: ", what, " is not over"));
}

absl::StatusOr<std::span<std::byte>> NcclComm::Allocate(size_t bytes) {
  using Allocation = NcclCommunicator::Allocation;
  auto allocation = std::make_shared<Allocation>();
  const auto job = owner_->Post([this, allocation, bytes](OwnerThread& owner) {
    COHORT_ASSIGN_OR_RETURN(*allocation, communicator_->Allocate(owner, bytes));
    return absl::OkStatus();
  });
  const absl::Status done = Await(*job, Now() + deadlines_.memory,
                                  absl::StrCat("allocating ", bytes, " bytes"));
  if (absl::IsResourceExhausted(done)) return done;
  if (!done.ok()) return EndFor(done);
  if (allocation->can_register) unregistered_.push_back(bytes);
  if (bytes > 0) allocated_.push_back(allocation->memory);
  return allocation->memory;
}

absl::Status NcclComm::Zero(std::span<std::byte> memory) {
  const auto job = owner_->Post([this, memory](OwnerThread& owner) {
    return communicator_->Zero(owner, memory);
  });
  const absl::Status done =
      Await(*job, Now() + deadlines_.memory, "zeroing memory");
  return done.ok() ? done : EndFor(done);
}

absl::Status NcclComm::CheckPeers() const {
  COHORT_RETURN_IF_ERROR(owner_->ended());
  return control_.CheckPeers();
}

void NcclComm::Revoke() {
  owner_->End(absl::StrCat("epoch ", epoch(), " is revoked"));
  control_.Revoke();
}

absl::Status NcclComm::EndFor(const absl::Status& why) {
  owner_->End(why.message());
  // Peers with the same deadline shall say whom they miss, too.
  if (absl::IsDeadlineExceeded(why)) return why;
  control_.Revoke();
  return absl::AbortedError(why.message());
}

absl::Status NcclComm::Run(const Call& call) {
  COHORT_RETURN_IF_ERROR(owner_->ended());
  const absl::Status done = RunUntil(call, Now() + call.deadline);
  return LeavesUsable(done) ? done : EndFor(done);
}

absl::Status NcclComm::RunUntil(const Call& call, absl::Duration until) {
  if (call.kind == Kind::kBarrier) {
    return Meet(call, until, /*is_ready=*/true, /*is_launched=*/false);
  }
  const absl::StatusOr<Prepared> prepared = Prepare(call, until);
  // That there is no room to stage is told to all when they meet.
  if (!prepared.ok() && !absl::IsResourceExhausted(prepared.status())) {
    return prepared.status();
  }
  std::shared_ptr<OwnerThread::Job> launched;
  const std::string shape = ShapeOf(Sign(call, epoch()));
  // NC-5: what all have agreed on is launched first and compared beside.
  const bool is_agreed = agreed_.contains(shape);
  if (is_agreed && prepared.ok()) launched = Launch(*prepared);
  const absl::Status met =
      Meet(call, until, prepared.ok(), /*is_launched=*/launched != nullptr);
  if (!met.ok()) {
    return absl::IsResourceExhausted(met) && !prepared.ok() ? prepared.status()
                                                            : met;
  }
  if (!is_agreed) {
    if (agreed_.size() >= kAgreedMax) agreed_.clear();
    agreed_.insert(shape);
    COHORT_RETURN_IF_ERROR(RegisterWindows(until));
    launched = Launch(*prepared);
  }
  COHORT_RETURN_IF_ERROR(
      Await(*launched, until,
            absl::StrCat("the collective that all ranks came to within ",
                         absl::FormatDuration(call.deadline))));
  // NC-6.
  if (!prepared->staged.empty()) {
    Unpack(prepared->stage.pinned, prepared->staged);
  }
  return absl::OkStatus();
}

bool NcclComm::IsAllocated(const Buffer& buffer) const {
  const auto* const begin = static_cast<const std::byte*>(buffer.data);
  return std::any_of(
      allocated_.begin(), allocated_.end(), [&](std::span<std::byte> memory) {
        return begin >= memory.data() &&
               begin + buffer.bytes() <= memory.data() + memory.size();
      });
}

absl::StatusOr<NcclComm::Prepared> NcclComm::Prepare(const Call& call,
                                                     absl::Duration until) {
  Prepared prepared;
  prepared.collective = {.kind = call.kind, .op = call.op, .root = call.root};
  std::vector<Buffer> foreign;
  for (const Buffer& buffer : call.buffers) {
    if (buffer.count == 0) continue;
    if (IsAllocated(buffer)) {
      prepared.collective.buffers.push_back(buffer);
    } else {
      foreign.push_back(buffer);
    }
  }
  if (foreign.empty()) return prepared;

  struct Answer {
    std::vector<bool> reaches;
    Stage stage;
  };
  auto answer = std::make_shared<Answer>();
  const auto job = owner_->Post([this, answer, foreign](OwnerThread& owner) {
    owner.SetCall("cuPointerGetAttribute");
    size_t bytes = 0;
    for (const Buffer& buffer : foreign) {
      answer->reaches.push_back(communicator_->device().Reaches(buffer.data));
      if (!answer->reaches.back()) bytes += PackedBytes(buffer);
    }
    COHORT_ASSIGN_OR_RETURN(answer->stage,
                            communicator_->Reserve(owner, bytes));
    return absl::OkStatus();
  });
  COHORT_RETURN_IF_ERROR(Await(*job, until, "preparing to stage"));
  prepared.stage = answer->stage;
  Collective& collective = prepared.collective;
  for (size_t i = 0; i < foreign.size(); ++i) {
    Buffer buffer = foreign[i];
    if (!answer->reaches[i]) {
      prepared.staged.push_back(buffer);
      buffer.data = prepared.stage.device + collective.staged_bytes;
      collective.staged_bytes += PackedBytes(buffer);
    }
    collective.buffers.push_back(buffer);
  }
  Pack(prepared.staged, prepared.stage.pinned);
  return prepared;
}

std::shared_ptr<OwnerThread::Job> NcclComm::Launch(const Prepared& prepared) {
  return owner_->Post(
      [this, collective = prepared.collective](OwnerThread& owner) {
        return communicator_->Run(owner, collective);
      });
}

absl::Status NcclComm::Meet(const Call& call, absl::Duration until,
                            bool is_ready, bool is_launched) {
  Post mine;
  mine.signature = Sign(call, epoch());
  mine.signature.has_failed = is_ready ? 0 : 1;
  mine.unregistered = HashOf(unregistered_);
  mine.is_launched = is_launched ? 1 : 0;
  // A sum in which each rank has a row of its own: all rows, on all ranks.
  std::vector<int64_t> rows(kPostWords * world());
  std::memcpy(&rows[kPostWords * rank()], &mine, sizeof(mine));
  const absl::Duration left = until - Now();
  const absl::Status met =
      control_.AllReduce(Buffer::Of(std::span(rows)), ReduceOp::kSum, left);
  if (!met.ok()) {
    const Call meeting = {.kind = Kind::kAllReduce,
                          .sequence = control_.sequence(),
                          .op = ReduceOp::kSum};
    // In the words of this call: its name, its deadline.
    const std::string text = absl::StrReplaceAll(
        absl::StripPrefix(met.message(),
                          absl::StrCat(meeting.ToString(), ": ")),
        {{absl::FormatDuration(left), absl::FormatDuration(call.deadline)}});
    return absl::IsDeadlineExceeded(met) ? absl::DeadlineExceededError(text)
                                         : absl::AbortedError(text);
  }
  std::vector<Post> posts(world());
  std::memcpy(static_cast<void*>(posts.data()), rows.data(),
              posts.size() * sizeof(Post));
  absl::Status verdict;
  bool any_launched = false;
  bool is_same_memory = true;
  for (int peer = 0; peer < world(); ++peer) {
    const Post& theirs = posts[peer];
    if (verdict.ok()) {
      verdict = CheckAlike(mine.signature, peer, theirs.signature);
    }
    any_launched |= theirs.is_launched != 0;
    is_same_memory &= theirs.unregistered == mine.unregistered;
  }
  for (int peer = 0; peer < world() && verdict.ok(); ++peer) {
    if (posts[peer].signature.has_failed == 0) continue;
    verdict = absl::ResourceExhaustedError(absl::StrCat(
        "rank ", peer, " has no memory to stage ", PackedBytes(call.buffers),
        " bytes; use buffers from Allocate"));
  }
  // What was launched cannot be taken back, on no rank.
  if (!verdict.ok() && any_launched) owner_->End(verdict.message());
  can_register_ = is_same_memory && !unregistered_.empty();
  return verdict;
}

absl::Status NcclComm::RegisterWindows(absl::Duration until) {
  if (!can_register_) return absl::OkStatus();
  unregistered_.clear();
  const auto registered = owner_->Post([this](OwnerThread& owner) {
    return communicator_->RegisterWindows(owner);
  });
  return Await(*registered, until, "registering memory");
}

}  // namespace cohort::trainer
