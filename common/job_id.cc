#include "common/job_id.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/check.h"
#include "common/printable_text.h"
#include "common/status_macros.h"

namespace cohort {
namespace {

constexpr size_t kIndexBytes = JobId::kElementBytes - JobId::kBytes;
constexpr size_t kHexDigits = 2 * JobId::kBytes;

uint32_t IndexFromBytes(absl::string_view bytes) {
  uint32_t index = 0;
  for (const char byte : bytes) {
    index = (index << 8) | static_cast<unsigned char>(byte);
  }
  return index;
}

// Nothing unless `text` is a number as ToText writes it.
std::optional<uint32_t> IndexFromText(absl::string_view text) {
  uint32_t index = 0;
  if (!absl::SimpleAtoi(text, &index) || index > JobId::kIndexMax ||
      absl::StrCat(index) != text) {
    return std::nullopt;
  }
  return index;
}

}  // namespace

JobId JobId::New(Random& random) {
  JobId id;
  id.root_ = Root::New(random);
  return id;
}

absl::StatusOr<JobId> JobId::FromBytes(absl::string_view bytes) {
  if (bytes.size() != kBytes && bytes.size() != kElementBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a job id has ", kBytes, " bytes, or ", kElementBytes,
        " for an element of an array, this one has ", bytes.size()));
  }
  JobId id;
  COHORT_ASSIGN_OR_RETURN(id.root_, Root::FromBytes(bytes.substr(0, kBytes)));
  if (bytes.size() == kBytes) return id;
  const uint32_t index = IndexFromBytes(bytes.substr(kBytes));
  if (index > kIndexMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a job id's index is at most ", kIndexMax, ", not ", index));
  }
  id.index_ = index;
  return id;
}

absl::StatusOr<JobId> JobId::FromText(absl::string_view text) {
  JobId id;
  const absl::StatusOr<Root> root = Root::FromHex(text.substr(0, kHexDigits));
  if (root.ok()) {
    id.root_ = *root;
    if (text.size() == kHexDigits) return id;
    if (text[kHexDigits] == '.') {
      id.index_ = IndexFromText(text.substr(kHexDigits + 1));
      if (id.index_.has_value()) return id;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("a job id is ", kHexDigits,
                   " hex digits, and .INDEX for an element of an array, not ",
                   Quoted(text)));
}

JobId JobId::Element(uint32_t index) const {
  COHORT_CHECK(!IsElement() && index <= kIndexMax) << *this << " " << index;
  JobId id = *this;
  id.index_ = index;
  return id;
}

JobId JobId::array() const {
  JobId id = *this;
  id.index_.reset();
  return id;
}

std::string JobId::bytes() const {
  std::string bytes(root_.bytes());
  if (!index_.has_value()) return bytes;
  for (size_t i = 0; i < kIndexBytes; ++i) {
    const size_t shift = 8 * (kIndexBytes - 1 - i);
    bytes.push_back(static_cast<char>((*index_ >> shift) & 0xff));
  }
  return bytes;
}

std::string JobId::ToText() const {
  std::string text = root_.ToHex();
  if (index_.has_value()) absl::StrAppend(&text, ".", *index_);
  return text;
}

std::string JobIdText(absl::string_view bytes) {
  const absl::StatusOr<JobId> id = JobId::FromBytes(bytes);
  return id.ok() ? id->ToText() : absl::BytesToHexString(bytes);
}

}  // namespace cohort
