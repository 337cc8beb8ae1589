#include "head/autoscaler/provider_json.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "common/printable_text.h"

namespace cohort::head {
namespace {

constexpr size_t kProviderReasonBytesMax = 512;
constexpr double kNoticeSecondsMax = 366 * 24 * 3600;

}  // namespace

absl::StatusOr<Json> ParseJsonObject(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  return absl::InvalidArgumentError(
      absl::StrCat("it wrote no JSON object: ", Shown(text.substr(0, 100))));
}

absl::StatusOr<std::string> TextOf(const Json& object, const char* key,
                                   size_t bytes_max) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return "";
  if (!found->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(key, " is not a string"));
  }
  const auto text = found->get<std::string>();
  if (text.size() > bytes_max || !IsPrintableUtf8(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, " is not one line of at most ", bytes_max, " bytes"));
  }
  return text;
}

std::string ReasonOf(const Json& object) {
  const auto reason = object.find("reason");
  if (reason == object.end() || !reason->is_string()) return "";
  return OneLine(Cut(reason->get<std::string>(), kProviderReasonBytesMax));
}

std::optional<absl::Duration> NoticeOf(const Json& object, const char* key) {
  const auto notice = object.find(key);
  if (notice == object.end() || !notice->is_number()) return std::nullopt;
  const auto seconds = notice->get<double>();
  if (!std::isfinite(seconds) || seconds < 0) return std::nullopt;
  return absl::Seconds(std::min(seconds, kNoticeSecondsMax));
}

}  // namespace cohort::head
