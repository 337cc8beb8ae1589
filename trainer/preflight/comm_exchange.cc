#include "trainer/preflight/comm_exchange.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"

#include "common/status_macros.h"

namespace cohort::trainer {

absl::StatusOr<std::vector<std::string>> GatherBlobs(Comm& comm,
                                                     absl::string_view mine,
                                                     size_t bytes_max,
                                                     absl::Duration deadline) {
  const bool fits = mine.size() <= bytes_max;
  // A slot: the size, then the bytes.  Sums with zeros change no bit.
  const size_t slot = 1 + (bytes_max + sizeof(int32_t) - 1) / sizeof(int32_t);
  std::vector<int32_t> words(slot * comm.world());
  int32_t* const own = words.data() + slot * comm.rank();
  if (fits && !mine.empty()) {
    own[0] = static_cast<int32_t>(mine.size());
    std::memcpy(own + 1, mine.data(), mine.size());
  }
  COHORT_RETURN_IF_ERROR(
      comm.AllReduce(Buffer::Of(std::span(words)), ReduceOp::kSum, deadline));
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a blob of ", mine.size(), " bytes, there is room for ", bytes_max));
  }
  std::vector<std::string> blobs(comm.world());
  for (int rank = 0; rank < comm.world(); ++rank) {
    const int32_t* const from = words.data() + slot * rank;
    const size_t size = static_cast<size_t>(std::max(from[0], 0));
    if (size > bytes_max) {
      return absl::DataLossError(
          absl::StrCat("rank ", rank, " gave ", size, " bytes"));
    }
    blobs[rank].assign(reinterpret_cast<const char*>(from + 1), size);
  }
  return blobs;
}

Exchange Lockstep::With(int peer, int steps_max) {
  return [this, peer, steps_max](
             absl::string_view tag, std::string mine,
             absl::Duration) -> absl::StatusOr<std::vector<std::string>> {
    if (steps_ >= steps_max) {
      return absl::InternalError(
          absl::StrCat("an exchange of ", tag, " beyond step ", steps_max));
    }
    // A byte in front: what is empty is no blob.
    COHORT_ASSIGN_OR_RETURN(std::vector<std::string> all,
                            Step(absl::StrCat("+", mine)));
    const std::string& theirs = all[peer];
    if (theirs.empty()) {
      return absl::UnavailableError(
          absl::StrCat("rank ", peer, " did not connect"));
    }
    std::vector<std::string> both = {mine, theirs.substr(1)};
    if (peer < all_.rank()) std::swap(both[0], both[1]);
    return both;
  };
}

absl::Status Lockstep::ComeTo(int steps) {
  while (status_.ok() && steps_ < steps) Step("").status().IgnoreError();
  return status_;
}

absl::StatusOr<std::vector<std::string>> Lockstep::Step(
    absl::string_view mine) {
  COHORT_RETURN_IF_ERROR(status_);
  ++steps_;
  auto blobs = GatherBlobs(all_, mine, kBlobBytesMax + 1, deadline_);
  // One that was too large is this pair's fault, and all took the step.
  if (!absl::IsInvalidArgument(blobs.status())) status_ = blobs.status();
  return blobs;
}

}  // namespace cohort::trainer
