#include "trainer/comm/comm.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "common/status_util.h"

namespace cohort::trainer {
namespace {

absl::Status CheckBuffers(std::span<const Buffer> buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Buffer& buffer = buffers[i];
    if (SizeOf(buffer.dtype) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("buffer ", i, " has the unknown type ",
                       static_cast<uint32_t>(buffer.dtype)));
    }
    if (buffer.count > 0 && buffer.data == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "buffer ", i, " of ", buffer.count, " elements has no memory"));
    }
  }
  return absl::OkStatus();
}

// Whether the communicator can go on: every rank came to the same verdict
// before anything was done.
bool LeavesUsable(const absl::Status& status) {
  return status.ok() || absl::IsInvalidArgument(status) ||
         absl::IsResourceExhausted(status);
}

}  // namespace

absl::string_view ToString(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
  }
  return "unknown";
}

absl::string_view ToString(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kAverage:
      return "average";
  }
  return "unknown";
}

size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF64:
      return 8;
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
    case DType::kF16:
    case DType::kBF16:
      return 2;
  }
  return 0;
}

std::string Comm::Call::ToString() const {
  switch (kind) {
    case Kind::kAllReduce:
      return absl::StrCat("AllReduce #", sequence, " (", trainer::ToString(op),
                          ")");
    case Kind::kBroadcast:
      return absl::StrCat("Broadcast #", sequence, " (root ", root, ")");
    case Kind::kBarrier:
      return absl::StrCat("Barrier #", sequence);
    case Kind::kLeave:
      return absl::StrCat("leave after #", sequence);
    case Kind::kReduceScatter:
      return absl::StrCat("ReduceScatter #", sequence, " (",
                          trainer::ToString(op), ")");
    case Kind::kAllGather:
      return absl::StrCat("AllGather #", sequence);
  }
  return absl::StrCat("operation #", sequence);
}

Comm::Comm(const Identity& identity) : identity_(identity) {}

Comm::~Comm() = default;

absl::Status Comm::AllReduce(std::span<const Buffer> buffers, ReduceOp op,
                             absl::Duration deadline) {
  return Do({.kind = Kind::kAllReduce,
             .buffers = buffers,
             .op = op,
             .deadline = deadline});
}

absl::Status Comm::ReduceScatter(std::span<const Buffer> buffers, ReduceOp op,
                                 absl::Duration deadline) {
  return Do({.kind = Kind::kReduceScatter,
             .buffers = buffers,
             .op = op,
             .deadline = deadline});
}

absl::Status Comm::AllGather(std::span<const Buffer> buffers,
                             absl::Duration deadline) {
  return Do(
      {.kind = Kind::kAllGather, .buffers = buffers, .deadline = deadline});
}

absl::Status Comm::Broadcast(std::span<const Buffer> buffers, int root,
                             absl::Duration deadline) {
  return Do({.kind = Kind::kBroadcast,
             .buffers = buffers,
             .root = root,
             .deadline = deadline});
}

absl::Status Comm::Barrier(absl::Duration deadline) {
  return Do({.kind = Kind::kBarrier, .deadline = deadline});
}

CommWork Comm::StartAllReduce(std::vector<Buffer> buffers, ReduceOp op,
                              absl::Duration deadline) {
  return Start({.kind = Kind::kAllReduce, .op = op, .deadline = deadline},
               std::move(buffers));
}

CommWork Comm::StartReduceScatter(std::vector<Buffer> buffers, ReduceOp op,
                                  absl::Duration deadline) {
  return Start({.kind = Kind::kReduceScatter, .op = op, .deadline = deadline},
               std::move(buffers));
}

CommWork Comm::StartAllGather(std::vector<Buffer> buffers,
                              absl::Duration deadline) {
  return Start({.kind = Kind::kAllGather, .deadline = deadline},
               std::move(buffers));
}

CommWork Comm::StartBroadcast(std::vector<Buffer> buffers, int root,
                              absl::Duration deadline) {
  return Start({.kind = Kind::kBroadcast, .root = root, .deadline = deadline},
               std::move(buffers));
}

CommWork Comm::StartBarrier(absl::Duration deadline) {
  return Start({.kind = Kind::kBarrier, .deadline = deadline}, {});
}

absl::Status Comm::CheckCall(const Call& call) const {
  const bool reduces =
      call.kind == Kind::kAllReduce || call.kind == Kind::kReduceScatter;
  const bool is_in_blocks =
      call.kind == Kind::kAllGather || call.kind == Kind::kReduceScatter;
  if (trainer::ToString(call.op) == "unknown") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown operation ", static_cast<uint32_t>(call.op)));
  }
  if (call.root < 0 || call.root >= world()) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", call.root, " in a world of ", world()));
  }
  for (const Buffer& buffer : call.buffers) {
    if (reduces && call.op == ReduceOp::kAverage &&
        (buffer.dtype == DType::kI32 || buffer.dtype == DType::kI64)) {
      return absl::InvalidArgumentError(
          absl::StrCat("no average of ", trainer::ToString(buffer.dtype),
                       "; take the sum and divide as you mean it"));
    }
    if (is_in_blocks && call.parts == 0 &&
        buffer.count % static_cast<size_t>(world()) != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(buffer.count, " elements do not make ", world(),
                       " blocks of equal size"));
    }
  }
  return CheckBuffers(call.buffers);
}

absl::Status Comm::Do(const Call& call) {
  // What is under way has the communicator.
  if (works_ != nullptr) works_->Settle();
  Call limited = call;
  limited.deadline = std::min(call.deadline, deadline_max_);
  return DoNow(limited);
}

CommWork Comm::Start(Call call, std::vector<Buffer> buffers) {
  if (works_ == nullptr) works_ = std::make_unique<CommWorkThread>();
  call.deadline = std::min(call.deadline, deadline_max_);
  const auto started = std::chrono::steady_clock::now();
  return works_->Start(
      [this, call, started, buffers = std::move(buffers)]() mutable {
        call.buffers = buffers;
        call.deadline -=
            absl::FromChrono(std::chrono::steady_clock::now() - started);
        return DoNow(call);
      });
}

absl::Status Comm::NotArrived(const Call& call, std::vector<int> missing) {
  missing_ = std::move(missing);
  return absl::DeadlineExceededError(
      absl::StrCat("not arrived within ", absl::FormatDuration(call.deadline),
                   ": rank(s) ", absl::StrJoin(missing_, ", ")));
}

BucketBytes Comm::bucket_bytes() const {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  return {.first = kAll, .next = kAll};
}

absl::Status Comm::Zero(std::span<std::byte> memory) {
  if (!memory.empty()) std::memset(memory.data(), 0, memory.size());
  return absl::OkStatus();
}

absl::Status Comm::DoNow(Call call) {
  call.sequence = sequence_ + 1;
  if (absl::Status valid = CheckCall(call); !valid.ok()) {
    return Annotate(valid, call.ToString());
  }
  ++sequence_;
  if (!over_.ok()) {
    return absl::AbortedError(
        absl::StrCat(call.ToString(), ": the communicator of epoch ", epoch(),
                     " is over since: ", over_.message()));
  }
  const auto begin = std::chrono::steady_clock::now();
  const absl::Status done = Annotate(Run(call), call.ToString());
  time_in_calls_ += absl::FromChrono(std::chrono::steady_clock::now() - begin);
  if (!LeavesUsable(done)) over_ = done;
  return done;
}

}  // namespace cohort::trainer
