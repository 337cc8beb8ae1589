// How fast the head makes decisions durable: transitions with real rows through
// Commit and RocksdbStore, beside what the disk itself can do in the same run.

#include "head/store/commit.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "bench/report.h"
#include "common/check.h"
#include "common/mutex.h"
#include "common/random.h"
#include "common/strand.h"
#include "common/thread_pool.h"
#include "head/store/records_codec.h"
#include "head/store/rocksdb_store.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

constexpr int kTransitionBytes = 500;  // about what Submitter makes

std::unique_ptr<RocksdbStore> MustOpen(const std::string& path) {
  auto store = RocksdbStore::Open({.path = path});
  COHORT_CHECK(store.ok()) << store.status().ToString();
  return *std::move(store);
}

// The floor: appends `bytes` and syncs them, again and again.
absl::Duration DiskSyncTime(const std::string& dir, size_t bytes, int rounds) {
  const std::string path = dir + "/floor";
  const int fd = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  COHORT_CHECK(fd >= 0) << path;
  const std::string row(bytes, 'x');
  const absl::Time start = absl::Now();
  for (int i = 0; i < rounds; ++i) {
    COHORT_CHECK(write(fd, row.data(), row.size()) ==
                 static_cast<ssize_t>(row.size()));
    COHORT_CHECK(fdatasync(fd) == 0);
  }
  close(fd);
  return (absl::Now() - start) / rounds;
}

// What submitting a job changes: the counters, the job, an event, the answer.
class Submitter {
 public:
  Submitter() : random_(1) {
    SetCommand(job_.spec.Own(), {"./train", "--epochs", "10", "--batch", "64"});
    auto& environment =
        *job_.spec.Own().mutable_launch()->mutable_environment();
    environment["OMP_NUM_THREADS"] = "2";
    environment["PATH"] = "/usr/bin";
    SetResources(job_.spec.Own(), *ParseResources("CPU=1,GPU=1"));
    job_.spec.Own().mutable_run()->set_storage_path("/data/results");
    job_.row.mutable_origin()->set_principal("bench");
    job_.row.mutable_origin()->set_request_id("0123456789abcdef");
    job_.row.set_reason(
        "needs 2 x {CPU 1, GPU 1} (PACK); room for 0 of 2 workers");
  }

  Transition Next() {
    Transition transition;
    cluster_.set_next_event(cluster_.next_event() + 1);
    cluster_.set_next_job_sequence(cluster_.next_job_sequence() + 1);
    job_.id = JobId::New(random_);
    job_.row.set_job_id(IdBytes(job_.id));
    job_.row.set_sequence(cluster_.next_job_sequence());
    EventRecord event;
    event.set_number(cluster_.next_event());
    event.set_kind("job_submitted");
    event.set_principal(job_.row.origin().principal());
    event.set_request_id(job_.row.origin().request_id());
    event.set_job_id(IdBytes(job_.id));
    RequestRecord request;
    request.set_principal("bench");
    request.set_request_id(job_.id.bytes());
    request.set_body_hash(std::string(32, 'h'));
    request.set_answer(std::string(40, 'a'));
    transition.Put(cluster_);
    transition.Put(job_);
    transition.Put(SpecRecord{.id = job_.id, .spec = job_.spec});
    transition.Put(event);
    transition.Put(request);
    return transition;
  }

 private:
  SeededRandom random_;
  ClusterRecord cluster_ = NewCluster();
  JobRecord job_;
};

// Keeps `in_flight` transitions going until `total` are durable.
class Load {
 public:
  Load(Commit& commit, int in_flight, int total)
      : commit_(commit), in_flight_(in_flight), total_(total) {}

  // On the strand.
  void Start() {
    for (int i = 0; i < in_flight_ && submitted_ < total_; ++i) SubmitOne();
  }

  void Wait() {
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
  }

 private:
  void SubmitOne() {
    ++submitted_;
    Transition transition = submitter_.Next();
    transition.Then([this](const absl::Status& status) {
      COHORT_CHECK(status.ok()) << status.ToString();
      if (submitted_ < total_) SubmitOne();
      if (++durable_ < total_) return;
      MutexLock lock(mutex_);
      done_ = true;
      changed_.Signal();
    });
    commit_.Submit(std::move(transition));
  }

  Commit& commit_;
  const int in_flight_;
  const int total_;
  // The strand.
  Submitter submitter_;
  int submitted_ = 0;
  int durable_ = 0;

  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

// Makes `total` transitions durable; how long that took.
absl::Duration CommitTime(RocksdbStore& store, int in_flight, int total) {
  ThreadPool strand_pool(1);
  ThreadPool store_pool(1);
  Strand strand(strand_pool);
  Strand store_strand(store_pool);
  std::unique_ptr<Commit> commit;
  std::unique_ptr<Load> load;
  const absl::Time start = absl::Now();
  strand.Post([&] {
    commit = std::make_unique<Commit>(store, store_strand, strand, /*term=*/0,
                                      [](const absl::Status&) {});
    load = std::make_unique<Load>(*commit, in_flight, total);
    load->Start();
  });
  strand.Drain();
  load->Wait();
  const absl::Duration took = absl::Now() - start;
  strand.Post([&commit] { commit.reset(); });
  strand.Drain();
  store_strand.Drain();
  return took;
}

void BenchDurable(bench::Report& report, const bench::Flags& flags,
                  const std::string& dir, int in_flight, int total) {
  bench::Figure figure{.name = absl::StrCat("durable/", in_flight),
                       .unit = "transitions/s",
                       .less_is_better = false};
  absl::Duration floor;
  const int runs = flags.quick ? 2 : 5;
  for (int run = 0; run < runs; ++run) {
    const std::string path =
        absl::StrCat(dir, "/durable-", in_flight, "-", run);
    std::unique_ptr<RocksdbStore> store = MustOpen(path);
    const absl::Duration took = CommitTime(*store, in_flight, total);
    figure.samples.values.push_back(total / absl::ToDoubleSeconds(took));
    const size_t bytes = size_t{kTransitionBytes} * in_flight;
    floor += DiskSyncTime(dir, bytes, std::min(200, total / in_flight)) / runs;
  }
  figure.floor = in_flight / absl::ToDoubleSeconds(floor);
  report.Add(figure);
}

// A head's start on `jobs` jobs, first after a kill, then with an empty log.
void BenchOpen(bench::Report& report, const bench::Flags& flags,
               const std::string& dir, int jobs) {
  bench::Figure killed{.name = absl::StrCat("open/killed/", jobs),
                       .unit = "ms"};
  bench::Figure clean{.name = absl::StrCat("open/clean/", jobs), .unit = "ms"};
  bench::Figure load{.name = absl::StrCat("load/", jobs), .unit = "ms"};
  const auto time = [](bench::Figure& figure, auto&& what) {
    const absl::Time start = absl::Now();
    what();
    figure.samples.values.push_back(
        absl::ToDoubleMilliseconds(absl::Now() - start));
  };
  for (int run = 0; run < (flags.quick ? 2 : 5); ++run) {
    const std::string path = absl::StrCat(dir, "/open-", jobs, "-", run);
    std::unique_ptr<RocksdbStore> store = MustOpen(path);
    (void)CommitTime(*store, /*in_flight=*/1024, jobs);
    store.reset();
    time(killed, [&] { store = MustOpen(path); });
    time(load, [&store] { COHORT_CHECK(LoadRecords<JobRecord>(*store).ok()); });
    store.reset();
    time(clean, [&] { store = MustOpen(path); });
  }
  report.Add(killed);
  report.Add(clean);
  report.Add(load);
}

void Run(const bench::Flags& flags) {
  const std::string dir =
      absl::StrCat("/var/tmp/cohort-bench-commit-", getpid());
  std::filesystem::create_directories(dir);
  bench::Report report("commit", flags);
  const int scale = flags.quick ? 1 : 10;
  BenchDurable(report, flags, dir, 1, 200 * scale);
  BenchDurable(report, flags, dir, 128, 5'000 * scale);
  BenchDurable(report, flags, dir, 1024, 20'000 * scale);
  BenchOpen(report, flags, dir, 10'000);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace cohort::head

int main(int argc, char** argv) {
  cohort::head::Run(cohort::bench::ParseFlags(argc, argv));
  return 0;
}
