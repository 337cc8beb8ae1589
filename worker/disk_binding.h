#pragma once

#include <optional>

#include "common/executor.h"
#include "worker/head_link.h"
#include "worker/journal.h"

namespace cohort::worker {

// ClusterBinding in the journal.  Strand-bound; writes go to `disk`.
class DiskBinding final : public ClusterBinding {
 public:
  // All outlive the binding and what it posted.
  DiskBinding(Journal& journal, std::optional<v1::Stamp> loaded,
              Executor& strand, Executor& disk)
      : journal_(journal),
        strand_(strand),
        disk_(disk),
        current_(std::move(loaded)) {}

  std::optional<v1::Stamp> Current() const override { return current_; }

  void Save(const v1::Stamp& stamp,
            absl::AnyInvocable<void(absl::Status) &&> done) override {
    disk_.Post([this, stamp, done = std::move(done)]() mutable {
      absl::Status status = journal_.SaveBinding(stamp);
      strand_.Post([this, stamp, done = std::move(done),
                    status = std::move(status)]() mutable {
        if (status.ok()) current_ = stamp;
        std::move(done)(std::move(status));
      });
    });
  }

 private:
  Journal& journal_;
  Executor& strand_;
  Executor& disk_;
  std::optional<v1::Stamp> current_;
};

}  // namespace cohort::worker
