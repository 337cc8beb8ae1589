#include "shm/metrics_cell.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::shm {

absl::Status MetricsCell::Publish(absl::string_view payload) {
  if (payload.size() > kPayloadBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a metrics report of ", payload.size(), " bytes: the limit is ",
        kPayloadBytesMax, "; report fewer or shorter metrics"));
  }
  cell_.Publish(std::as_bytes(std::span(payload.data(), payload.size())));
  return absl::OkStatus();
}

std::optional<MetricsCell::Report> MetricsCell::ReadAfter(
    uint64_t after) const {
  if (cell_.sequence() <= after) return std::nullopt;
  std::optional<SeqCell::Value> value = cell_.Read();
  if (!value) return std::nullopt;
  return Report{value->sequence, std::move(value->bytes)};
}

}  // namespace cohort::shm
