#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "examples/open_session.h"
#include "examples/program.h"
#include "trainer/hang_guard.h"
#include "trainer/session.h"
#include "trainer/worker_session.h"

namespace cohort::examples {

// Joins the gang, or is one alone, and trains on `device`: a `Training` is made
// of options, session, device and clock, and has Run().  `place` tells people
// where: "on cuda:0".
//
// On a GPU DEADLINE_EXCEEDED, whatever comes by it, ends the process with what
// it says, before anything is destroyed: the usual reason is a GPU that does
// not answer.
template <typename Training, typename Options, typename Device>
absl::Status TrainInGang(const Options& options, Device& device,
                         absl::string_view place) {
  const MachineClock clock;
  std::unique_ptr<trainer::Session> session;
  std::optional<Training> training;
  const absl::Status done = [&]() -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(session, OpenSession(options, options.use_gpu));
    if (session->is_lead()) {
      Say(absl::StrFormat("training on %d rank%s, attempt %d, %s%s",
                          session->world(), session->world() == 1 ? "" : "s",
                          session->place().attempt, place,
                          trainer::ReductionNote(*session, options.use_gpu)));
    }
    training.emplace(options, *session, device, clock);
    COHORT_RETURN_IF_ERROR(training->Run());
    return session->Finish();
  }();
  if (options.use_gpu && absl::IsDeadlineExceeded(done)) trainer::EndNow(done);
  return done;
}

}  // namespace cohort::examples
