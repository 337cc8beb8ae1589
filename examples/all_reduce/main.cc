// All-reduces buffers of growing size over a job's ranks, checks the sums, and
// prints how long it took: is the machine's communication right, and fast?
//
//   cohort submit --num-workers 2 -f -- all-reduce
//   cohort submit --use-gpu --num-workers 8 -f -- all-reduce --use-gpu
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "common/real_clock.h"
#include "common/status_macros.h"
#include "trainer/comm/comm.h"
#include "trainer/hang_guard.h"
#include "trainer/local_session.h"
#include "trainer/worker_session.h"

namespace all_reduce {
using cohort::trainer::Buffer;
using cohort::trainer::Comm;
using cohort::trainer::ReduceOp;
using cohort::trainer::Session;
constexpr absl::Duration kDeadline = absl::Minutes(1);

struct Options {
  bool use_gpu = false;
  int64_t max_bytes = 256 << 20;
  int runs = 9;
};

absl::StatusOr<std::unique_ptr<Session>> Open(bool use_gpu) {
  if (!cohort::trainer::IsRank()) {
    return cohort::trainer::LocalSession::Create({});
  }
  COHORT_ASSIGN_OR_RETURN(auto rank,
                          cohort::trainer::WorkerSessionFromEnvironment());
  rank.can_use_gpu = use_gpu;
  return cohort::trainer::WorkerSession::Join(std::move(rank));
}

// Rank r has r + 1, r + 2, ...: small whole numbers, whose sums are exact.
absl::Status CheckSums(Comm& comm, size_t count) {
  std::vector<float> values(count);
  const auto value = [](size_t i) { return static_cast<float>(i % 1000); };
  for (size_t i = 0; i < count; ++i) {
    values[i] = value(i) + static_cast<float>(comm.rank() + 1);
  }
  COHORT_RETURN_IF_ERROR(
      comm.AllReduce(Buffer::Of(std::span(values)), ReduceOp::kSum, kDeadline));
  const auto world = static_cast<float>(comm.world());
  for (size_t i = 0; i < count; ++i) {
    const float sum = world * value(i) + world * (world + 1) / 2;
    if (values[i] == sum) continue;
    return absl::DataLossError(absl::StrCat("element ", i, " of ", count,
                                            " is ", values[i], ", not ", sum));
  }
  return absl::OkStatus();
}

// The median of the slowest rank, in microseconds.
absl::StatusOr<double> Measure(Comm& comm, const Buffer& buffer, int runs) {
  const cohort::MachineClock clock;
  std::vector<double> took;
  for (int run = 0; run < runs; ++run) {
    COHORT_RETURN_IF_ERROR(comm.Barrier(kDeadline));
    const absl::Duration begin = clock.Monotonic();
    COHORT_RETURN_IF_ERROR(comm.AllReduce(buffer, ReduceOp::kSum, kDeadline));
    took.push_back(absl::ToDoubleMicroseconds(clock.Monotonic() - begin));
  }
  std::ranges::nth_element(took, took.begin() + runs / 2);
  double median = took[static_cast<size_t>(runs) / 2];
  COHORT_RETURN_IF_ERROR(comm.AllReduce(Buffer::Of(std::span(&median, 1)),
                                        ReduceOp::kMax, kDeadline));
  return median;
}

absl::Status Run(Session& session, const Options& options) {
  Comm& comm = session.comm();
  const auto most = static_cast<size_t>(options.max_bytes);
  COHORT_ASSIGN_OR_RETURN(const auto memory, comm.Allocate(most));
  if (session.is_lead()) {
    std::cout << comm.world() << (comm.world() == 1 ? " rank" : " ranks")
              << cohort::trainer::ReductionNote(session, options.use_gpu)
              << "\n     bytes         us   GB/s" << std::endl;
  }
  for (size_t bytes = 4; bytes <= most; bytes *= 8) {
    const size_t count = bytes / sizeof(float);
    COHORT_RETURN_IF_ERROR(CheckSums(comm, count));
    const Buffer buffer{memory.data(), count};
    COHORT_ASSIGN_OR_RETURN(const double us,
                            Measure(comm, buffer, options.runs));
    // What each rank sends and receives at least, as nccl-tests counts it.
    const double shares = 2 * (1 - 1.0 / comm.world());
    if (!session.is_lead()) continue;
    std::printf("%10zu %10.1f %6.2f\n", bytes, us,
                shares * static_cast<double>(bytes) / us / 1e3);
    std::fflush(stdout);
  }
  return session.Finish();
}

}  // namespace all_reduce

int main(int argc, char** argv) {
  all_reduce::Options options;
  CLI::App app("Checks and times all-reduce over a job's ranks.", "all-reduce");
  app.add_flag("--use-gpu", options.use_gpu,
               "In the memory of each rank's GPU");
  app.add_option("--max-bytes", options.max_bytes, "Of the largest buffer")
      ->check(CLI::Range(4, 1 << 30));
  app.add_option("--runs", options.runs, "Of each size")
      ->check(CLI::Range(1, 10'000));
  CLI11_PARSE(app, argc, argv);
  const auto session = all_reduce::Open(options.use_gpu);
  absl::Status done = session.status();
  if (done.ok() && options.use_gpu && cohort::trainer::IsRank() &&
      !(*session)->comm().allocates_on_device()) {
    done = absl::FailedPreconditionError(
        "--use-gpu: the ranks' GPUs cannot communicate (the log says why)");
  }
  if (done.ok()) done = all_reduce::Run(**session, options);
  if (done.ok()) return 0;
  // What a GPU does not answer would hold a destructor, too.
  if (absl::IsDeadlineExceeded(done)) cohort::trainer::EndNow(done);
  std::cerr << "all-reduce: " << done.message() << std::endl;
  return 1;
}
