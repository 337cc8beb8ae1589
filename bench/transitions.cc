// SubmitJob through the public client against a real head, each answer after
// its fsync, beside a bare gRPC server that syncs the same bytes.  Then the
// head is killed and the jobs are counted.  See README.md.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/client_callback.h"

#include "bench/report.h"
#include "bench/testbed.h"
#include "client/cluster.h"
#include "client/wire.h"
#include "common/file.h"
#include "common/latch.h"
#include "common/mutex.h"
#include "common/status_macros.h"

namespace cohort::bench {
namespace {

constexpr int kInFlight = 128;

// A job as people submit them; it waits, because no node has joined.
JobSpec FullSpec(int number) {
  JobSpec spec;
  spec.command = {"./train", "--epochs",          "10", "--batch", "64",
                  "--seed",  absl::StrCat(number)};
  spec.environment = {{"OMP_NUM_THREADS", "2"}, {"PATH", "/usr/bin:/bin"}};
  spec.scaling_config = {.num_workers = 2,
                         .use_gpu = true,
                         .resources_per_worker = *ParseResources("CPU=4,GPU=1"),
                         .placement_strategy = PlacementStrategy::kStrictPack};
  spec.run_config = {.name = absl::StrCat("bench-", number),
                     .storage_path = "/data/results",
                     .failure_config = {.max_failures = 3},
                     .checkpoint_config = {.num_to_keep = 2}};
  return spec;
}

// Something that answers calls: the head, or the floor.
class Target {
 public:
  virtual ~Target() = default;
  using Done = std::function<void(absl::Status)>;
  // `done` runs once, on another thread.
  virtual void Call(int number, Done done) = 0;
  // As Call, blocking.
  virtual absl::Status CallAndWait(int number) = 0;
};

class HeadTarget final : public Target {
 public:
  explicit HeadTarget(Cluster& cluster) : cluster_(cluster) {}

  void Call(int number, Done done) override {
    cluster_.SubmitAsync(
        FullSpec(number), {},
        [this, done = std::move(done)](absl::StatusOr<JobId> job) {
          done(Note(std::move(job)));
        });
  }
  absl::Status CallAndWait(int number) override {
    return Note(cluster_.Submit(FullSpec(number)));
  }

  int64_t acknowledged() const {
    MutexLock lock(mutex_);
    return static_cast<int64_t>(jobs_.size());
  }

 private:
  absl::Status Note(absl::StatusOr<JobId> job) {
    COHORT_RETURN_IF_ERROR(job.status());
    MutexLock lock(mutex_);
    return jobs_.insert(*job).second
               ? absl::OkStatus()
               : absl::InternalError("two submissions got one job");
  }

  Cluster& cluster_;
  mutable Mutex mutex_;
  std::set<JobId> jobs_ ABSL_GUARDED_BY(mutex_);
};

class FloorTarget final : public Target {
 public:
  explicit FloorTarget(const std::string& address)
      : stub_(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials())) {}

  void Call(int number, Done done) override {
    // Lives until its reply; gRPC's threads free it.
    auto* const call = new OneCall();
    const std::string bytes =
        client::ToWire(FullSpec(number)).SerializeAsString();
    const grpc::Slice slice(bytes);
    call->request = grpc::ByteBuffer(&slice, 1);
    stub_.UnaryCall(
        &call->context, "/Floor/Submit", {}, &call->request, &call->response,
        [call, done = std::move(done)](const grpc::Status& status) {
          delete call;
          done(status.ok() ? absl::OkStatus()
                           : absl::UnavailableError(status.error_message()));
        });
  }
  absl::Status CallAndWait(int number) override {
    Latch answered;
    absl::Status result;
    Call(number, [&](absl::Status status) {
      result = std::move(status);
      answered.Open();
    });
    answered.Wait();
    return result;
  }

 private:
  struct OneCall {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };

  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
};

// Keeps `in_flight` calls going until `total` are answered.  Thread-safe.
class ClosedLoop {
 public:
  ClosedLoop(Target& target, int total) : target_(target), total_(total) {}

  // Calls a second.
  absl::StatusOr<double> Run(int in_flight) {
    const absl::Time start = absl::Now();
    for (int i = 0; i < in_flight; ++i) Next();
    MutexLock lock(mutex_);
    while (answered_ < total_) changed_.Wait(mutex_);
    COHORT_RETURN_IF_ERROR(failure_);
    return total_ / absl::ToDoubleSeconds(absl::Now() - start);
  }

 private:
  void Next() {
    int number = 0;
    {
      MutexLock lock(mutex_);
      if (begun_ == total_) return;
      number = begun_++;
    }
    target_.Call(number, [this](const absl::Status& status) {
      Next();
      MutexLock lock(mutex_);
      failure_.Update(status);
      if (++answered_ == total_) changed_.Signal();
    });
  }

  Target& target_;
  const int total_;
  Mutex mutex_;
  CondVar changed_;
  int begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int answered_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
};

absl::Status TimeOne(Target& target, int number, Samples& samples) {
  const absl::Time start = absl::Now();
  COHORT_RETURN_IF_ERROR(target.CallAndWait(number));
  samples.values.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
  return absl::OkStatus();
}

// What the head's log grows by for one job.
absl::StatusOr<int64_t> BytesOfJob(const Testbed& testbed, Target& head) {
  constexpr int kJobs = 100;
  const int64_t before = testbed.HeadLogBytes();
  for (int i = 0; i < kJobs; ++i) {
    COHORT_RETURN_IF_ERROR(head.CallAndWait(i));
  }
  return (testbed.HeadLogBytes() - before) / kJobs;
}

absl::Status Measure(const Flags& flags, Report& report, Target& head,
                     Target& floor) {
  const int runs = flags.quick ? 3 : 7;
  const int alone_calls = flags.quick ? 200 : 500;
  const int total = flags.quick ? 4'000 : 10'000;
  Figure alone{.name = "alone/p50", .unit = "us"};
  Figure many{.name = absl::StrCat("in_flight/", kInFlight),
              .unit = "jobs/s",
              .less_is_better = false};
  Samples alone_floor;
  Samples many_floor;
  for (int run = -1; run < runs; ++run) {  // the first one warms up
    // In turn, so that both meet the same disk and the same neighbours.
    Samples head_calls;
    Samples floor_calls;
    for (int i = 0; i < alone_calls; ++i) {
      COHORT_RETURN_IF_ERROR(TimeOne(head, i, head_calls));
      COHORT_RETURN_IF_ERROR(TimeOne(floor, i, floor_calls));
    }
    COHORT_ASSIGN_OR_RETURN(const double rate,
                            ClosedLoop(head, total).Run(kInFlight));
    COHORT_ASSIGN_OR_RETURN(const double floor_rate,
                            ClosedLoop(floor, total).Run(kInFlight));
    if (run < 0) continue;
    alone.samples.values.push_back(head_calls.median());
    alone_floor.values.push_back(floor_calls.median());
    many.samples.values.push_back(rate);
    many_floor.values.push_back(floor_rate);
  }
  alone.floor = alone_floor.median();
  many.floor = many_floor.median();
  report.Add(alone);
  report.Add(many);
  return absl::OkStatus();
}

// Kills the head and starts it again; every acknowledged job must be there.
absl::Status CountAgain(Testbed& testbed, const Cluster& cluster,
                        int64_t acknowledged, Report& report) {
  testbed.KillHead();
  const absl::Time start = absl::Now();
  COHORT_RETURN_IF_ERROR(testbed.StartHead());
  COHORT_ASSIGN_OR_RETURN(const ClusterStatus status, cluster.Status());
  const double ms = absl::ToDoubleMilliseconds(absl::Now() - start);
  const auto pending = status.jobs_by_state.find("PENDING");
  const int64_t found =
      pending == status.jobs_by_state.end() ? 0 : pending->second;
  report.Add({.name = absl::StrCat("restart/", acknowledged, "_jobs"),
              .samples = {{ms}},
              .unit = "ms"});
  report.Add({.name = "lost",
              .samples = {{static_cast<double>(acknowledged - found)}},
              .unit = "jobs"});
  if (found == acknowledged) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(acknowledged,
                                          " jobs were acknowledged, ", found,
                                          " are there after kill -9"));
}

absl::Status Run(const Flags& flags) {
  Report report("transitions", flags);
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Testbed> testbed,
                          Testbed::Create());
  COHORT_RETURN_IF_ERROR(testbed->StartHead());
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Cluster> cluster,
                          testbed->Connect());
  HeadTarget head(*cluster);
  COHORT_ASSIGN_OR_RETURN(const int64_t bytes, BytesOfJob(*testbed, head));
  report.Add({.name = "bytes_a_job",
              .samples = {{static_cast<double>(bytes)}},
              .unit = "B"});

  const std::string ready = testbed->directory() + "/floor.ready";
  COHORT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Child> server,
      Child::Start({BENCH_FLOOR_SERVER, testbed->directory() + "/floor",
                    absl::StrCat(bytes), ready},
                   testbed->directory() + "/floor.log"));
  COHORT_RETURN_IF_ERROR(AwaitFile(ready, *server));
  COHORT_ASSIGN_OR_RETURN(std::string address, ReadFile(ready));
  absl::StripAsciiWhitespace(&address);
  FloorTarget floor(address);
  COHORT_RETURN_IF_ERROR(Measure(flags, report, head, floor));
  return CountAgain(*testbed, *cluster, head.acknowledged(), report);
}

int Main(int argc, char** argv) {
  const absl::Status done = Run(ParseFlags(argc, argv));
  if (done.ok()) return 0;
  std::fprintf(stderr, "bench_transitions: %s\n", done.ToString().c_str());
  return 125;
}

}  // namespace
}  // namespace cohort::bench

int main(int argc, char** argv) { return cohort::bench::Main(argc, argv); }
