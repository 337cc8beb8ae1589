#include "actor/codec_base.h"

#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "common/status_util.h"

namespace cohort {

void Encoder::WriteCount(size_t count) {
  if (count > std::numeric_limits<uint32_t>::max()) {
    Fail(SetReason(absl::InvalidArgumentError(absl::StrCat(
                       count, " elements are more than 32 bits count")),
                   kReasonTooLarge));
    count = 0;
  }
  const uint32_t word = static_cast<uint32_t>(count);
  WriteBytes(&word, sizeof(word));
}

size_t Encoder::BeginBlock() {
  WriteCount(0);
  return bytes_.size();
}

void Encoder::EndBlock(size_t begin) {
  const size_t size = bytes_.size() - begin;
  if (size > std::numeric_limits<uint32_t>::max()) {
    Fail(SetReason(absl::InvalidArgumentError("a struct is over 4 GiB"),
                   kReasonTooLarge));
    return;
  }
  const uint32_t word = static_cast<uint32_t>(size);
  std::memcpy(&bytes_[begin - sizeof(word)], &word, sizeof(word));
}

void Encoder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

bool Encoder::Enter() {
  if (depth_ < actor::kCodecDepthMax) {
    ++depth_;
    return true;
  }
  Fail(absl::InvalidArgumentError(absl::StrCat(
      "values are nested more than ", actor::kCodecDepthMax, " deep")));
  return false;
}

absl::StatusOr<std::string> Encoder::Finish() && {
  if (!status_.ok()) return status_;
  return std::move(bytes_);
}

bool Decoder::ReadCount(size_t& count) {
  uint32_t word = 0;
  absl::string_view bytes;
  if (!ReadBytes(sizeof(word), bytes)) return false;
  std::memcpy(&word, bytes.data(), sizeof(word));
  count = word;
  return count <= left();
}

bool Decoder::ReadBytes(size_t size, absl::string_view& bytes) {
  if (size > left()) return false;
  bytes = absl::string_view(begin_ + at_, size);
  at_ += size;
  return true;
}

bool Decoder::ReadElements(size_t element_bytes, size_t alignment,
                           size_t& count, absl::string_view& bytes) {
  if (!ReadCount(count)) return false;
  if (count == 0) {
    bytes = absl::string_view();
    return true;
  }
  absl::string_view padding;
  return ReadBytes(-at_ % alignment, padding) &&
         count <= left() / element_bytes &&
         ReadBytes(count * element_bytes, bytes);
}

const void* Decoder::AlignedBytes(absl::string_view bytes, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(bytes.data()) % alignment == 0) {
    return bytes.data();
  }
  const size_t words =
      (bytes.size() + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  copies_.emplace_back(new std::max_align_t[words]);
  std::memcpy(copies_.back().get(), bytes.data(), bytes.size());
  return copies_.back().get();
}

bool Decoder::EnterBlock(size_t& outer_end) {
  size_t size = 0;
  if (!ReadCount(size)) return false;
  outer_end = end_;
  end_ = at_ + size;
  return true;
}

void Decoder::LeaveBlock(size_t outer_end) {
  at_ = end_;
  end_ = outer_end;
}

}  // namespace cohort
