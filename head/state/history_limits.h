#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cohort::head {

// What bounds one kind of what is remembered.
struct HistoryCaps {
  int64_t count_max = 0;
  int64_t bytes_max = 0;  // of keys and values, as they are stored
  absl::Duration age_max;
  // Younger than this nothing goes, whatever the other caps say.
  absl::Duration age_min = absl::ZeroDuration();
  // When the head starts, everything is as old as nothing.
  bool age_begins_anew = false;
};

// How much is remembered of what is over; docs/operations/reference.md has the
// table.
//
// Slurm's controller forgets an ended job after 300 s and has 10,000 at most,
// Kubernetes keeps 12,500 ended pods, and events for an hour, Ray 100,000 task
// events: who asks the head of a small cluster weeks later should still be
// answered, and a large one stays within its memory.
struct HistoryLimits {
  // Single jobs, and arrays as a whole, with their attempts; by when they
  // ended.
  HistoryCaps jobs = {.count_max = 10'000,
                      .bytes_max = 256 << 20,
                      .age_max = absl::Hours(30 * 24)};
  // Executors of tasks that have ended, besides: what is said of a task whose
  // process ended, and no more.
  HistoryCaps executors = {
      .count_max = 100, .bytes_max = 8 << 20, .age_max = absl::Minutes(10)};
  // The jobs that these are, elements counted one by one.
  int64_t elements_max = 200'000;
  // Of one job, the last ones.
  size_t attempts_per_job_max = 16;
  HistoryCaps events = {.count_max = 100'000,
                        .bytes_max = 64 << 20,
                        .age_max = absl::Hours(30 * 24)};
  HistoryCaps audit = {.count_max = 100'000,
                       .bytes_max = 64 << 20,
                       .age_max = absl::Hours(90 * 24)};
  // Dead ones.  Those with a drain are kept besides: it holds when they come
  // back.
  HistoryCaps nodes = {.count_max = 1'000,
                       .bytes_max = 16 << 20,
                       .age_max = absl::Hours(30 * 24)};
  // Answers to request ids.  No client tries again for longer than its deadline
  // of 30 s, a person perhaps the day after; and age is counted again by each
  // head, because what is forgotten too early runs twice (RQ-1).
  HistoryCaps requests = {.count_max = 1'000'000,
                          .bytes_max = 256 << 20,
                          .age_max = absl::Hours(24),
                          .age_min = absl::Minutes(2),
                          .age_begins_anew = true};
  // Those that no unfinished job needs; the bytes of their files.  Who has just
  // uploaded one is about to name it.
  HistoryCaps packages = {.count_max = 1'000,
                          .bytes_max = int64_t{16} << 30,
                          .age_max = absl::Hours(1),
                          .age_min = absl::Minutes(2),
                          .age_begins_anew = true};
  HistoryCaps wait_reasons = {.count_max = 10'000,
                              .bytes_max = 16 << 20,
                              .age_max = absl::Hours(7 * 24)};
};

}  // namespace cohort::head
