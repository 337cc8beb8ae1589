#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/executor.h"
#include "common/hash.h"
#include "head/services/package_store.h"

namespace cohort::head {

// A PackageStore without a disk, for tests and the simulation.  Outlives heads
// as a disk does.  Strand-bound.
class MemoryPackageStore final : public PackageStore {
 public:
  explicit MemoryPackageStore(Executor& strand) : strand_(strand) {}

  void Begin(const std::string& hash, int64_t size_bytes,
             Done<absl::StatusOr<int64_t>> done) override {
    if (hash.size() != Digest::kBytes || size_bytes < 0) {
      return Answer<absl::StatusOr<int64_t>>(
          std::move(done), absl::InvalidArgumentError("no such package"));
    }
    const std::string& there =
        whole_.contains(hash) ? whole_[hash] : parts_[hash];
    Answer<absl::StatusOr<int64_t>>(std::move(done),
                                    static_cast<int64_t>(there.size()));
  }

  void Upload(const std::string& hash, int64_t offset, std::string data,
              Done<absl::StatusOr<int64_t>> done) override {
    std::string& part = parts_[hash];
    if (offset != static_cast<int64_t>(part.size())) {
      return Answer<absl::StatusOr<int64_t>>(
          std::move(done), absl::FailedPreconditionError("wrong offset"));
    }
    part += data;
    Answer<absl::StatusOr<int64_t>>(std::move(done),
                                    static_cast<int64_t>(part.size()));
  }

  void Finish(const std::string& hash, int64_t size_bytes,
              Done<absl::Status> done) override {
    if (!whole_.contains(hash)) {
      std::string& part = parts_[hash];
      if (static_cast<int64_t>(part.size()) < size_bytes) {
        return Answer<absl::Status>(
            std::move(done), absl::FailedPreconditionError("bytes missing"));
      }
      const std::string bytes = std::move(part);
      parts_.erase(hash);
      if (Sha256::Of(bytes).bytes() != absl::string_view(hash)) {
        return Answer<absl::Status>(std::move(done),
                                    absl::DataLossError("another hash"));
      }
      whole_[hash] = bytes;
    }
    Answer<absl::Status>(std::move(done), absl::OkStatus());
  }

  void Look(const std::string& hash, int64_t,
            Done<absl::Status> done) override {
    Answer<absl::Status>(std::move(done),
                         whole_.contains(hash)
                             ? absl::OkStatus()
                             : absl::NotFoundError("no such package"));
  }

  void Fetch(const std::string& hash, int64_t offset,
             Done<absl::StatusOr<PackageChunk>> done) override {
    const auto found = whole_.find(hash);
    if (found == whole_.end() || offset < 0 ||
        offset > static_cast<int64_t>(found->second.size())) {
      return Answer<absl::StatusOr<PackageChunk>>(
          std::move(done), absl::NotFoundError("no such package"));
    }
    Answer<absl::StatusOr<PackageChunk>>(
        std::move(done),
        PackageChunk{.data = found->second.substr(static_cast<size_t>(offset),
                                                  kChunkBytesMax),
                     .size_bytes = static_cast<int64_t>(found->second.size())});
  }

  void Remove(const std::string& hash) override {
    whole_.erase(hash);
    parts_.erase(hash);
  }

  void KeepOnly(std::vector<std::string> known) override {
    std::map<std::string, std::string> kept;
    for (const std::string& hash : known) {
      if (auto whole = whole_.extract(hash)) kept.insert(std::move(whole));
    }
    whole_ = std::move(kept);
  }

  // Its file disappears.
  void Lose(const std::string& hash) { whole_.erase(hash); }

  bool Has(const std::string& hash) const { return whole_.contains(hash); }

 private:
  template <typename T>
  void Answer(Done<T> done, T result) {
    strand_.Post(
        [done = std::move(done), result = std::move(result)]() mutable {
          std::move(done)(std::move(result));
        });
  }

  Executor& strand_;
  std::map<std::string, std::string> whole_;
  std::map<std::string, std::string> parts_;
};

}  // namespace cohort::head
