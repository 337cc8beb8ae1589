#include "trainer/comm/testing/fake_nccl.h"

#include <cstring>

#include "trainer/comm/comm.h"
#include "trainer/comm/reduce.h"

namespace cohort::trainer::nccl {
namespace {

#define COHORT_FAKE_ENTER(call) \
  if (const auto chosen = faults_.Enter(call)) return *chosen

DType TypeOf(DataType type) {
  switch (type) {
    case kInt32:
      return DType::kI32;
    case kInt64:
      return DType::kI64;
    case kFloat16:
      return DType::kF16;
    case kFloat64:
      return DType::kF64;
    case kBfloat16:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}

ReduceOp OpOf(RedOp op) {
  switch (op) {
    case kMax:
      return ReduceOp::kMax;
    case kMin:
      return ReduceOp::kMin;
    case kAvg:
      return ReduceOp::kAverage;
    default:
      return ReduceOp::kSum;
  }
}

// In rank order, which real NCCL does not promise.
void Compute(const std::vector<FakeOperation>& by_rank) {
  const FakeOperation& first = by_rank.front();
  if (first.count == 0) return;
  std::vector<std::byte*> memory;
  for (const FakeOperation& one : by_rank) memory.push_back(one.data);
  if (!first.is_broadcast) {
    const std::vector<const std::byte*> sources(memory.begin(), memory.end());
    Reduce({.dtype = TypeOf(first.type),
            .op = OpOf(first.op),
            .sources = sources,
            .destinations = memory},
           0, first.count);
    return;
  }
  for (std::byte* const to : memory) {
    if (to == memory[first.root]) continue;
    std::memcpy(to, memory[first.root],
                first.count * SizeOf(TypeOf(first.type)));
  }
}

}  // namespace

// Guarded by the fabric's mutex.
struct FakeFabric::Group {
  struct Meeting {
    std::vector<FakeOperation> by_rank;
    int arrived = 0;
    bool is_done = false;
    bool is_broken = false;  // never done
  };

  int world = 0;
  int joined = 0;
  std::map<uint64_t, Meeting> meetings;
};

UniqueId FakeFabric::NewId() {
  MutexLock lock(mutex_);
  UniqueId id = {};
  ++ids_;
  std::memcpy(id.internal, &ids_, sizeof(ids_));
  return id;
}

std::shared_ptr<FakeFabric::End> FakeFabric::Join(const UniqueId& id, int world,
                                                  int rank) {
  MutexLock lock(mutex_);
  auto& group = groups_[std::string(id.internal, sizeof(id.internal))];
  if (group == nullptr) group = std::make_shared<Group>();
  group->world = world;
  ++group->joined;
  auto end = std::make_shared<End>();
  end->group = group;
  end->rank = rank;
  return end;
}

bool FakeFabric::IsBusy(const End& end) const {
  MutexLock lock(mutex_);
  const Group& group = *end.group;
  if (group.joined < group.world) return true;
  return end.is_revoked && end.running > 0;
}

void FakeFabric::Launch(const std::shared_ptr<End>& end,
                        const FakeOperation& operation) {
  uint64_t index = 0;
  {
    MutexLock lock(mutex_);
    index = end->operations++;
    ++end->running;
  }
  cuda::FakeDriver::Enqueue(operation.stream, [this, end, index, operation] {
    Execute(end, index, operation);
  });
}

void FakeFabric::Execute(const std::shared_ptr<End>& end, uint64_t index,
                         const FakeOperation& operation) {
  MutexLock lock(mutex_);
  const auto is_cut = [&] { return end->is_revoked || end->is_gone; };
  while (holds_ && !is_cut()) changed_.Wait(mutex_);
  Group& group = *end->group;
  Group::Meeting& meeting = group.meetings[index];
  meeting.by_rank.resize(group.world);
  meeting.by_rank[end->rank] = operation;
  if (++meeting.arrived == group.world && !meeting.is_broken && !is_cut()) {
    for (const FakeOperation& other : meeting.by_rank) {
      if (!other.IsLike(operation)) meeting.is_broken = true;
    }
    if (!meeting.is_broken) {
      Compute(meeting.by_rank);
      meeting.is_done = true;
    }
    changed_.SignalAll();
  }
  while (!meeting.is_done && !is_cut()) changed_.Wait(mutex_);
  // Its memory may go away now.
  if (!meeting.is_done) meeting.is_broken = true;
  --end->running;
  changed_.SignalAll();
}

void FakeFabric::Revoke(End& end) {
  MutexLock lock(mutex_);
  end.is_revoked = true;
  changed_.SignalAll();
}

void FakeFabric::Leave(End& end) {
  MutexLock lock(mutex_);
  end.is_gone = true;
  changed_.SignalAll();
}

void FakeFabric::Hold() {
  MutexLock lock(mutex_);
  holds_ = true;
}

void FakeFabric::Resume() {
  MutexLock lock(mutex_);
  holds_ = false;
  changed_.SignalAll();
}

FakeNccl::FakeNccl(FakeFabric& fabric, int version)
    : fabric_(fabric), version_(version) {}

NcclTable FakeNccl::table() {
  NcclTable table;
  FillCommunicatorCalls(table);
  FillOperationCalls(table);
  FillOptionalCalls(table);
  return table;
}

void FakeNccl::FailInBackground(Result result) {
  MutexLock lock(mutex_);
  background_ = result;
  for (auto& [comm, held] : held_) held.background = result;
}

void FakeNccl::FailInBackground(const std::string& call, Result result) {
  MutexLock lock(mutex_);
  wrong_[call] = result;
}

bool FakeNccl::GoesWrong(Communicator comm, const std::string& call) {
  MutexLock lock(mutex_);
  const auto found = wrong_.find(call);
  if (found == wrong_.end()) return false;
  held_.at(comm).background = found->second;
  wrong_.erase(found);
  return true;
}

size_t FakeNccl::communicators() const {
  MutexLock lock(mutex_);
  return held_.size();
}
int FakeNccl::misuses() const {
  MutexLock lock(mutex_);
  return misuses_;
}

std::shared_ptr<FakeFabric::End> FakeNccl::Find(Communicator comm) {
  MutexLock lock(mutex_);
  const auto found = held_.find(comm);
  if (found != held_.end()) return found->second.end;
  ++misuses_;
  return nullptr;
}

Result FakeNccl::Kept(Communicator comm) const {
  MutexLock lock(mutex_);
  const auto found = held_.find(comm);
  if (found == held_.end()) return kInvalidArgument;
  const Result background = found->second.background;
  return background == kInProgress ? kSuccess : background;
}

Result FakeNccl::Misuse(Result result) {
  MutexLock lock(mutex_);
  ++misuses_;
  return result;
}

Result FakeNccl::Init(Communicator* comm, int world, const UniqueId& id,
                      int rank, const Config* config) {
  if (config == nullptr || config->magic != 0xcafebeef ||
      config->size != sizeof(Config) || config->blocking != 0 || rank < 0 ||
      rank >= world) {
    return Misuse(kInvalidArgument);
  }
  auto end = fabric_.Join(id, world, rank);
  *comm = reinterpret_cast<Communicator>(end.get());
  {
    MutexLock lock(mutex_);
    held_[*comm] = {.end = std::move(end), .background = background_};
  }
  GoesWrong(*comm, "ncclCommInitRankConfig");
  return kInProgress;
}

Result FakeNccl::AsyncError(Communicator comm, Result* result) {
  const auto end = Find(comm);
  if (end == nullptr) return kInvalidArgument;
  const bool is_busy = fabric_.IsBusy(*end);
  MutexLock lock(mutex_);
  const Result background = held_.at(comm).background;
  *result = background != kSuccess ? background
            : is_busy              ? kInProgress
                                   : kSuccess;
  return kSuccess;
}

Result FakeNccl::Take(Communicator comm, const FakeOperation& operation) {
  const auto end = Find(comm);
  if (end == nullptr) return kInvalidArgument;
  if (end->is_revoked) return Misuse(kInvalidUsage);
  if (const Result kept = Kept(comm); kept != kSuccess) return kept;
  MutexLock lock(mutex_);
  if (!in_group_) {
    ++misuses_;  // our own rule: always in a group
    return kInvalidUsage;
  }
  grouped_.emplace_back(comm, operation);
  return kSuccess;
}

Result FakeNccl::EndGroup() {
  std::vector<std::pair<Communicator, FakeOperation>> grouped;
  {
    MutexLock lock(mutex_);
    grouped.swap(grouped_);
    in_group_ = false;
  }
  for (const auto& [comm, operation] : grouped) {
    const auto end = Find(comm);
    if (end == nullptr) return kInvalidArgument;
    if (!GoesWrong(comm, "ncclGroupEnd")) fabric_.Launch(end, operation);
  }
  // Non-blocking communicators are launched in the background.
  return grouped.empty() ? kSuccess : kInProgress;
}

Result FakeNccl::Forget(Communicator comm) {
  const auto end = Find(comm);
  if (end == nullptr) return kInvalidArgument;
  fabric_.Leave(*end);
  MutexLock lock(mutex_);
  held_.erase(comm);
  return kSuccess;
}

void FakeNccl::FillCommunicatorCalls(NcclTable& t) {
  t.ncclGetVersion = [this](int* version) -> Result {
    COHORT_FAKE_ENTER("ncclGetVersion");
    *version = version_;
    return kSuccess;
  };
  t.ncclGetErrorString = [](Result result) -> const char* {
    return result == kRemoteError ? "remote process exited or there was a "
                                    "network error"
                                  : "some error";
  };
  t.ncclGetLastError = [](Communicator) -> const char* { return "fake words"; };
  t.ncclGetUniqueId = [this](UniqueId* id) -> Result {
    COHORT_FAKE_ENTER("ncclGetUniqueId");
    *id = fabric_.NewId();
    return kSuccess;
  };
  t.ncclCommInitRankConfig = [this](Communicator* comm, int world, UniqueId id,
                                    int rank, Config* config) -> Result {
    COHORT_FAKE_ENTER("ncclCommInitRankConfig");
    return Init(comm, world, id, rank, config);
  };
  t.ncclCommGetAsyncError = [this](Communicator comm,
                                   Result* result) -> Result {
    COHORT_FAKE_ENTER("ncclCommGetAsyncError");
    return AsyncError(comm, result);
  };
  t.ncclCommFinalize = [this](Communicator comm) -> Result {
    COHORT_FAKE_ENTER("ncclCommFinalize");
    const auto end = Find(comm);
    if (end == nullptr) return kInvalidArgument;
    // Forbidden after a revoke, as nccl.h says.
    if (end->is_revoked) return Misuse(kInvalidUsage);
    if (const Result kept = Kept(comm); kept != kSuccess) return kept;
    GoesWrong(comm, "ncclCommFinalize");
    return kInProgress;
  };
  t.ncclCommDestroy = [this](Communicator comm) -> Result {
    COHORT_FAKE_ENTER("ncclCommDestroy");
    return Forget(comm);
  };
  t.ncclCommAbort = [this](Communicator comm) -> Result {
    COHORT_FAKE_ENTER("ncclCommAbort");
    return Forget(comm);
  };
}

void FakeNccl::FillOperationCalls(NcclTable& t) {
  t.ncclAllReduce = [this](const void* from, void* to, size_t count,
                           DataType type, RedOp op, Communicator comm,
                           cuda::Stream stream) -> Result {
    COHORT_FAKE_ENTER("ncclAllReduce");
    if (from != to) return Misuse(kInvalidArgument);
    return Take(comm, {.data = static_cast<std::byte*>(to),
                       .count = count,
                       .type = type,
                       .op = op,
                       .stream = stream});
  };
  t.ncclBroadcast = [this](const void* from, void* to, size_t count,
                           DataType type, int root, Communicator comm,
                           cuda::Stream stream) -> Result {
    COHORT_FAKE_ENTER("ncclBroadcast");
    if (from != to) return Misuse(kInvalidArgument);
    return Take(comm, {.is_broadcast = true,
                       .data = static_cast<std::byte*>(to),
                       .count = count,
                       .type = type,
                       .root = root,
                       .stream = stream});
  };
  t.ncclGroupStart = [this]() -> Result {
    COHORT_FAKE_ENTER("ncclGroupStart");
    MutexLock lock(mutex_);
    in_group_ = true;
    return kSuccess;
  };
  t.ncclGroupEnd = [this]() -> Result {
    COHORT_FAKE_ENTER("ncclGroupEnd");
    return EndGroup();
  };
}

void FakeNccl::FillOptionalCalls(NcclTable& t) {
  if (version_ >= kVersionRevoke) {
    t.ncclCommRevoke = [this](Communicator comm, int flags) -> Result {
      COHORT_FAKE_ENTER("ncclCommRevoke");
      const auto end = Find(comm);
      if (end == nullptr || flags != 0) return kInvalidArgument;
      fabric_.Revoke(*end);
      GoesWrong(comm, "ncclCommRevoke");
      return kInProgress;
    };
  }
}

}  // namespace cohort::trainer::nccl
