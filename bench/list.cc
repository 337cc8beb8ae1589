// That 100,000 waiting jobs slow neither a submit nor a list, and what an array
// of as many costs.  See README.md.

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/closed_loop.h"
#include "bench/report.h"
#include "bench/target.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "common/status_macros.h"

namespace cohort::bench {
namespace {

constexpr int kInFlight = 128;
constexpr size_t kPage = 100;  // a screen of jobs

using Step = absl::FunctionRef<absl::Status()>;

absl::StatusOr<double> MillisecondsOf(Step step) {
  const absl::Time start = absl::Now();
  COHORT_RETURN_IF_ERROR(step());
  return absl::ToDoubleMilliseconds(absl::Now() - start);
}

absl::StatusOr<Samples> Repeat(int times, Step step) {
  Samples samples;
  for (int i = 0; i < times; ++i) {
    COHORT_ASSIGN_OR_RETURN(const double ms, MillisecondsOf(step));
    samples.values.push_back(ms);
  }
  return samples;
}

// What is asked again and again, of one head.
class Asker {
 public:
  explicit Asker(Cluster& cluster) : cluster_(cluster) {}

  absl::Status Submit() {
    return cluster_.Submit(FullSpec(submitted_++)).status();
  }
  absl::Status FirstPage() { return cluster_.List({.limit = kPage}).status(); }
  absl::Status Status() { return cluster_.Status().status(); }
  absl::Status ListAll(const std::optional<JobId>& array, size_t expected) {
    ListOptions options;
    options.array = array;
    options.limit = 10'000'000;
    COHORT_ASSIGN_OR_RETURN(const JobList list, cluster_.List(options));
    if (list.jobs.size() == expected) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(list.jobs.size(), " of ", expected, " jobs were listed"));
  }
  int submitted() const { return submitted_; }

 private:
  Cluster& cluster_;
  int submitted_ = 0;
};

// An array of `elements` until it is durable and every element was listed.
absl::Status MeasureArray(const Flags& flags, int elements, Cluster& cluster,
                          Asker& asker, Report& report) {
  Figure durable{.name = absl::StrCat("array/", elements, "/durable"),
                 .unit = "ms"};
  Figure listed{.name = absl::StrCat("array/", elements, "/listed"),
                .unit = "ms"};
  for (int run = 0; run < (flags.quick ? 2 : 3); ++run) {
    JobSpec spec = FullSpec(run);
    spec.array = absl::StrCat("0-", elements - 1);
    const absl::Time start = absl::Now();
    COHORT_ASSIGN_OR_RETURN(const JobId array, cluster.Submit(spec));
    durable.samples.values.push_back(
        absl::ToDoubleMilliseconds(absl::Now() - start));
    COHORT_RETURN_IF_ERROR(asker.ListAll(array, static_cast<size_t>(elements)));
    listed.samples.values.push_back(
        absl::ToDoubleMilliseconds(absl::Now() - start));
  }
  report.Add(durable);
  report.Add(listed);
  return absl::OkStatus();
}

absl::Status Run(const Flags& flags) {
  Report report("list", flags);
  const int jobs = flags.quick ? 20'000 : 100'000;
  const int calls = flags.quick ? 100 : 300;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  Asker asker(*cluster);
  COHORT_ASSIGN_OR_RETURN(const Samples alone,
                          Repeat(calls, [&] { return asker.Submit(); }));
  HeadTarget head(*cluster);
  COHORT_RETURN_IF_ERROR(
      ClosedLoop(head, jobs - asker.submitted()).Run(kInFlight).status());

  COHORT_ASSIGN_OR_RETURN(const Samples status,
                          Repeat(calls, [&] { return asker.Status(); }));
  COHORT_ASSIGN_OR_RETURN(const Samples page,
                          Repeat(calls, [&] { return asker.FirstPage(); }));
  report.Add({.name = absl::StrCat("first_page/", jobs),
              .samples = page,
              .unit = "ms",
              .floor = status.median()});
  COHORT_ASSIGN_OR_RETURN(const Samples all, Repeat(3, [&] {
                            return asker.ListAll(std::nullopt,
                                                 static_cast<size_t>(jobs));
                          }));
  report.Add(
      {.name = absl::StrCat("all/", jobs), .samples = all, .unit = "ms"});
  COHORT_ASSIGN_OR_RETURN(const Samples beside,
                          Repeat(calls, [&] { return asker.Submit(); }));
  report.Add({.name = absl::StrCat("submit/", jobs),
              .samples = beside,
              .unit = "ms",
              .floor = alone.median()});
  return MeasureArray(flags, jobs, *cluster, asker, report);
}

int Main(int argc, char** argv) {
  const absl::Status done = Run(ParseFlags(argc, argv));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_list: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
