#include "shm/served_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/status_macros.h"
#include "common/status_util.h"
#include "common/unique_fd.h"

namespace cohort::shm {
namespace {

constexpr SegmentType kType = {SegmentKind::kServedCalls, 1};

// One call.  `number` is 0 while the rest is written.
struct Record {
  std::atomic<uint64_t> number;  // 1, 2, ... of all calls
  std::atomic<uint32_t> caller;
  std::atomic<uint16_t> method;
  std::atomic<uint16_t> track;
  std::atomic<int64_t> queued_us;
  std::atomic<int64_t> begun_us;
  std::atomic<int64_t> ended_us;
};
static_assert(sizeof(Record) == 40);

struct Body {
  uint64_t incarnation;
  std::atomic<uint64_t> methods;
  uint8_t reserved[48];
  char names[ServedCalls::kMethodsMax][ServedCalls::kMethodBytesMax];
  Record records[ServedCalls::kCallsMax];
};
static_assert(sizeof(Body) == 64 + 24'576 + 400'000);

Body& BodyOf(const Segment& segment) {
  return *reinterpret_cast<Body*>(segment.body().data());
}

Record& RecordOf(const Segment& segment, uint64_t number) {
  return BodyOf(segment).records[number % ServedCalls::kCallsMax];
}

// A whole file as it was at some time, in any state.
using Image = std::unique_ptr<std::byte[]>;
constexpr size_t kImageBytes = sizeof(SegmentHeader) + sizeof(Body);

// Not mapped: the process could cut the file under the reader.
absl::StatusOr<Image> ReadImage(int file, const std::string& path) {
  auto image = std::make_unique<std::byte[]>(kImageBytes);
  for (size_t at = 0; at < kImageBytes;) {
    const ssize_t got =
        pread(file, image.get() + at, kImageBytes - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, absl::StrCat("reading ", path));
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path, " is cut short"));
    }
    at += static_cast<size_t>(got);
  }
  const auto& header = *reinterpret_cast<const SegmentHeader*>(image.get());
  if (header.magic != kSegmentMagic ||
      header.kind != static_cast<uint32_t>(kType.kind)) {
    return absl::DataLossError(absl::StrCat(path, " holds no calls"));
  }
  if (header.layout_version != kType.layout_version) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, " has layout version ", header.layout_version, ", and ",
        kType.layout_version,
        " is wanted (build the program with the worker's version)"));
  }
  return image;
}

const Body& BodyOf(const Image& image) {
  return *reinterpret_cast<const Body*>(image.get() + sizeof(SegmentHeader));
}

std::string NameOf(const Body& body, size_t method) {
  const char* const name = body.names[method];
  return std::string(name, strnlen(name, ServedCalls::kMethodBytesMax));
}

bool IsPossible(const ServedCall& call, size_t methods) {
  return call.method < methods && call.queued_us >= 0 &&
         call.begun_us >= call.queued_us &&
         (call.ended_us == 0 || call.ended_us >= call.begun_us);
}

ServedCall CallOf(const Record& record) {
  return {.method = record.method,
          .caller = record.caller,
          .track = record.track,
          .queued_us = record.queued_us,
          .begun_us = record.begun_us,
          .ended_us = record.ended_us};
}

}  // namespace

std::string ServedCalls::FileName(int slot) {
  return absl::StrCat("calls-", slot);
}

absl::StatusOr<std::unique_ptr<ServedCalls>> ServedCalls::Create(
    const std::string& path, uint64_t incarnation) {
  unlink(path.c_str());
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment,
                          Segment::Create(path, kType, sizeof(Body)));
  BodyOf(*segment).incarnation = incarnation;
  auto calls =
      std::unique_ptr<ServedCalls>(new ServedCalls(std::move(segment)));
  calls->AddMethod("(other methods)");
  return calls;
}

ServedCalls::ServedCalls(std::unique_ptr<Segment> segment)
    : segment_(std::move(segment)) {}

uint32_t ServedCalls::AddMethod(absl::string_view name) {
  const std::string kept(name.substr(0, kMethodBytesMax));
  const auto known = methods_.find(kept);
  if (known != methods_.end()) return known->second;
  Body& body = BodyOf(*segment_);
  const auto number = static_cast<uint32_t>(methods_.size());
  if (number == kMethodsMax) return 0;
  std::memcpy(body.names[number], kept.data(), kept.size());
  body.methods.store(number + 1, std::memory_order_release);
  methods_.emplace(kept, number);
  return number;
}

uint64_t ServedCalls::Begin(const ServedCall& call) {
  const uint64_t number = ++last_;
  Record& record = RecordOf(*segment_, number);
  constexpr auto kRelaxed = std::memory_order_relaxed;
  record.number.store(0, kRelaxed);
  std::atomic_thread_fence(std::memory_order_release);
  record.caller.store(call.caller, kRelaxed);
  record.method.store(static_cast<uint16_t>(call.method), kRelaxed);
  record.track.store(static_cast<uint16_t>(call.track), kRelaxed);
  record.queued_us.store(call.queued_us, kRelaxed);
  record.begun_us.store(std::max(call.begun_us, call.queued_us), kRelaxed);
  record.ended_us.store(0, kRelaxed);
  record.number.store(number, std::memory_order_release);
  return number;
}

void ServedCalls::End(uint64_t call, int64_t ended_us) {
  Record& record = RecordOf(*segment_, call);
  if (record.number.load(std::memory_order_relaxed) != call) return;
  const int64_t begun_us = record.begun_us.load(std::memory_order_relaxed);
  record.ended_us.store(std::max(ended_us, begun_us),
                        std::memory_order_relaxed);
}

absl::StatusOr<ServedCallsFile> ReadServedCalls(const std::string& path) {
  const UniqueFd file(
      open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file) return ErrnoStatus(errno, absl::StrCat("opening ", path));
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::DataLossError(absl::StrCat(path, " is not a file"));
  }
  COHORT_ASSIGN_OR_RETURN(const Image image, ReadImage(file.get(), path));
  // A record that was being written in the first one has another number in the
  // second.
  COHORT_ASSIGN_OR_RETURN(const Image later, ReadImage(file.get(), path));
  const Body& body = BodyOf(image);
  ServedCallsFile read;
  read.incarnation = body.incarnation;
  const size_t methods =
      std::min<size_t>(body.methods, ServedCalls::kMethodsMax);
  for (size_t i = 0; i < methods; ++i) {
    read.methods.push_back(NameOf(body, i));
  }
  std::vector<std::pair<uint64_t, ServedCall>> calls;
  for (size_t i = 0; i < ServedCalls::kCallsMax; ++i) {
    const Record& record = body.records[i];
    const uint64_t number = record.number;
    const ServedCall call = CallOf(record);
    if (number == 0 || number != BodyOf(later).records[i].number ||
        !IsPossible(call, methods)) {
      continue;
    }
    calls.emplace_back(number, call);
  }
  std::sort(calls.begin(), calls.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [number, call] : calls) read.calls.push_back(call);
  return read;
}

}  // namespace cohort::shm
