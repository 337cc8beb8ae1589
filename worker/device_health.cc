#include "worker/device_health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// How long nothing of it was seen before a suspect device is healthy.
constexpr absl::Duration kQuiet = absl::Seconds(60);
constexpr absl::Duration kQuietAfterXid = absl::Minutes(10);
constexpr absl::Duration kFencedAfter = absl::Seconds(30);
// Samples in a row that failed.
constexpr int kErrorsMax = 3;

struct KnownXid {
  uint64_t xid;
  XidMeaning meaning;
  const char* name;
};

constexpr KnownXid kXids[] = {
    {13, XidMeaning::kApplication, "graphics engine exception"},
    {31, XidMeaning::kApplication, "GPU memory page fault"},
    {43, XidMeaning::kApplication, "GPU stopped processing"},
    {45, XidMeaning::kApplication, "preemptive cleanup"},
    {48, XidMeaning::kFault, "double-bit ECC error"},
    {62, XidMeaning::kFault, "internal micro-controller halt"},
    {63, XidMeaning::kSuspect, "row remapping or page retirement recorded"},
    {64, XidMeaning::kFault, "row remapping or page retirement failed"},
    {68, XidMeaning::kApplication, "video processor exception"},
    {74, XidMeaning::kFault, "NVLink error"},
    {79, XidMeaning::kLost, "GPU has fallen off the bus"},
    {94, XidMeaning::kFault, "contained ECC error"},
    {95, XidMeaning::kFault, "uncontained ECC error"},
    {109, XidMeaning::kApplication, "context switch timeout"},
    {119, XidMeaning::kFault, "GSP RPC timeout"},
    {120, XidMeaning::kFault, "GSP error"},
    {140, XidMeaning::kFault, "unrecovered ECC error"},
};

const KnownXid* Find(uint64_t xid) {
  const auto* const found =
      std::find_if(std::begin(kXids), std::end(kXids),
                   [xid](const KnownXid& known) { return known.xid == xid; });
  return found == std::end(kXids) ? nullptr : found;
}

std::string XidText(uint64_t xid) {
  const absl::string_view name = XidName(xid);
  return absl::StrCat("Xid ", xid,
                      name.empty() ? "" : absl::StrCat(" (", name, ")"));
}

}  // namespace

XidMeaning MeaningOf(uint64_t xid) {
  const KnownXid* const known = Find(xid);
  return known == nullptr ? XidMeaning::kSuspect : known->meaning;
}

const char* XidName(uint64_t xid) {
  const KnownXid* const known = Find(xid);
  return known == nullptr ? "" : known->name;
}

DeviceHealth::DeviceHealth(std::string name, const Clock& clock)
    : name_(std::move(name)), clock_(clock), heard_at_(clock.Monotonic()) {}

void DeviceHealth::NoteAnswer(const DeviceAnswer& answer) {
  error_ = answer.error;
  // A sample with anything in it is an answer too.
  if (error_.empty() || answer.sample.ByteSizeLong() > 0) {
    heard_at_ = clock_.Monotonic();
    silent_.clear();
  }
  if (!answer.lost.empty() && lost_.empty()) {
    lost_ = absl::StrCat("it is lost: ", answer.lost);
  }
  if (IsLost()) return Judge();  // nothing else that it says means anything
  errors_ = answer.error.empty() ? 0 : errors_ + 1;
  if (errors_ >= kErrorsMax) {
    Doubtful("error", absl::StrCat("it cannot be asked: ", answer.error),
             kQuiet);
  }
  const v1::DeviceSample& sample = answer.sample;
  counted_.clear();
  if (sample.ecc_volatile() > 0) {
    counted_ = absl::StrCat(sample.ecc_volatile(),
                            " uncorrectable ECC errors since its driver was "
                            "loaded");
  } else if (sample.remap_failed()) {
    counted_ = "a row remap failed";
  }
  if (sample.remap_pending()) {
    Doubtful("remap", "a row remap waits for its reset", kQuiet);
  }
  Judge();
}

void DeviceHealth::NoteXid(uint64_t xid) {
  last_xid_ = xid;
  switch (MeaningOf(xid)) {
    case XidMeaning::kApplication:
      break;
    case XidMeaning::kSuspect:
      Doubtful("xid", XidText(xid), kQuietAfterXid);
      break;
    case XidMeaning::kFault:
      // The first one is the cause, those after it are mostly what follows.
      if (latched_.empty()) latched_ = XidText(xid);
      break;
    case XidMeaning::kLost:
      if (lost_.empty()) lost_ = XidText(xid);
      break;
  }
  Judge();
}

void DeviceHealth::NoteStuck(std::string who) {
  stuck_ = std::move(who);
  Judge();
}

void DeviceHealth::Tick() {
  const absl::Duration silence = clock_.Monotonic() - heard_at_;
  if (silence >= kFencedAfter) {
    silent_ = absl::StrCat("its driver has not answered for ",
                           absl::FormatDuration(kFencedAfter),
                           error_.empty() ? "" : " but with ", error_);
  } else if (silence >= kSuspectAfter) {
    Doubtful("silent",
             absl::StrCat("its driver has not answered for ",
                          absl::FormatDuration(kSuspectAfter)),
             kQuiet);
  }
  Judge();
}

void DeviceHealth::Doubtful(const char* kind, std::string why,
                            absl::Duration quiet) {
  doubts_[kind] = {.why = std::move(why), .until = clock_.Monotonic() + quiet};
}

void DeviceHealth::Judge() {
  const absl::Duration now = clock_.Monotonic();
  for (auto doubt = doubts_.begin(); doubt != doubts_.end();) {
    doubt = doubt->second.until <= now ? doubts_.erase(doubt) : ++doubt;
  }
  state_ = v1::DEVICE_STATE_FENCED;
  for (const std::string* cause :
       {&lost_, &latched_, &counted_, &stuck_, &silent_}) {
    if (cause->empty()) continue;
    reason_ = absl::StrCat(name_, ": ", *cause);
    return;
  }
  if (!doubts_.empty()) {
    state_ = v1::DEVICE_STATE_SUSPECT;
    reason_ = absl::StrCat(name_, ": ", doubts_.begin()->second.why);
    return;
  }
  state_ = v1::DEVICE_STATE_HEALTHY;
  reason_.clear();
}

}  // namespace cohort::worker
