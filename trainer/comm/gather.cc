#include "trainer/comm/gather.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
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

}  // namespace cohort::trainer
