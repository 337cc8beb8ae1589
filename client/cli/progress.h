#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/job.h"

namespace cohort::cli {

// Shows how a job or a transfer moves: one live line where a terminal looks,
// else a plain line for each change of the job's state or of why it waits.
//
// Thread-compatible.  A live line is taken away by Finish and the destructor.
class Progress {
 public:
  enum class Kind { kNone, kPlain, kLive };

  // `fd` is written to and outlives this.
  Progress(Kind kind, int fd) : kind_(kind), fd_(fd) {}
  ~Progress() { Finish(); }

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Live where `fd` is a terminal.
  static Kind KindFor(int fd);

  void Show(const Job& job);
  // What is shown on a terminal only.
  void ShowLive(absl::string_view text);
  void Finish();

 private:
  void Write(absl::string_view text) const;

  const Kind kind_;
  const int fd_;
  std::string last_;
  bool is_drawn_ = false;
};

// Whole seconds, for people: "0s", "1m30s".
std::string AgeText(absl::Duration age);

// "3 PENDING, 2 RUNNING".
std::string CountsText(const v1::ArrayStatus& array);

// "job <id> RUNNING attempt 2 (loss 0.31)".
std::string JobLine(const Job& job);

}  // namespace cohort::cli
