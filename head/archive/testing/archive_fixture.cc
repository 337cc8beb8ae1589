#include "head/archive/testing/archive_fixture.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/escaping.h"

#include "common/check.h"
#include "common/file.h"
#include "common/hash.h"
#include "head/store/records_codec.h"
#include "head/testing/job_specs.h"

namespace cohort::head {
namespace {

constexpr char kPackage[] = "the bytes of a package";

JobRecord Job(char id, uint64_t sequence, JobState state) {
  JobRecord job(FilledId<JobId>(id));
  job.row.set_sequence(sequence);
  job.row.set_state(state);
  SetCommand(job.spec.Own(), {"true"});
  job.row.set_epoch(1);
  job.row.set_incarnations(1);
  return job;
}

SpecRecord SpecOf(const JobRecord& job) {
  return {.id = job.id, .spec = job.spec};
}

Batch SomeRows(const std::string& package) {
  ClusterRecord cluster = NewCluster();
  cluster.set_cluster_id(std::string(16, 'c'));
  cluster.set_generation(std::string(16, 'g'));
  cluster.set_term(3);
  cluster.set_next_event(2);
  NodeRecord node;
  node.id = FilledId<NodeId>('n');
  node.node.set_name("node-1");
  JobRecord running = Job('r', 1, v1::JOB_STATE_RUNNING);
  running.row.set_attempts(1);
  JobRecord waiting = Job('w', 2, v1::JOB_STATE_PENDING);
  waiting.spec.Own().mutable_launch()->set_package_hash(package);
  const JobRecord ended = Job('e', 3, v1::JOB_STATE_SUCCEEDED);
  AttemptRecord attempt;
  attempt.id = FilledId<AttemptId>('a');
  attempt.job = running.id;
  attempt.number = 1;
  attempt.epoch = 1;
  attempt.state = v1::ATTEMPT_STATE_RUNNING;
  attempt.places = {{.node = node.id, .phase = v1::PLACE_PHASE_RUNNING}};
  attempt.processes = {
      {.incarnation = 1, .node = node.id, .state = v1::PROCESS_STATE_RUNNING}};
  EventRecord event;
  event.set_number(1);
  event.set_kind("job_submitted");
  PackageRecord packed;
  packed.set_hash(package);
  packed.set_size_bytes(sizeof(kPackage) - 1);
  RequestRecord request;
  request.set_principal("cluster");
  request.set_request_id("q");
  return {ToWrite(cluster), ToWrite(node),
          ToWrite(running), ToWrite(SpecOf(running)),
          ToWrite(waiting), ToWrite(SpecOf(waiting)),
          ToWrite(ended),   ToWrite(SpecOf(ended)),
          ToWrite(attempt), ToWrite(event),
          ToWrite(packed),  ToWrite(request)};
}

}  // namespace

ArchiveFixture::ArchiveFixture() : package_hex_(Sha256::Of(kPackage).ToHex()) {
  COHORT_CHECK(MakeDirectories(state_dir() + "/packages", 0700).ok());
  COHORT_CHECK(WriteFileAtomically(state_dir() + "/credential",
                                   std::string(32, 's'), 0600)
                   .ok());
  COHORT_CHECK(
      WriteFileAtomically(state_dir() + "/ca.key", "a key", 0600).ok());
  COHORT_CHECK(WriteFileAtomically(state_dir() + "/packages/" + package_hex_,
                                   kPackage, 0600)
                   .ok());
  COHORT_CHECK(
      store()
          .Append(0, SomeRows(std::string(Sha256::Of(kPackage).bytes())))
          .ok());
}

RocksdbStore& ArchiveFixture::store() {
  if (store_ == nullptr) {
    auto opened = RocksdbStore::Open({.path = state_dir() + "/store"});
    COHORT_CHECK(opened.ok()) << opened.status().ToString();
    store_ = *std::move(opened);
  }
  return *store_;
}

absl::StatusOr<BackupManifest> ArchiveFixture::Backup(
    const std::string& directory, const std::string& request_id,
    int64_t bytes_kept_free) {
  DiskBackups backups(
      {.state_dir = state_dir(), .bytes_kept_free = bytes_kept_free}, executor_,
      executor_, executor_);
  absl::StatusOr<BackupManifest> result = absl::InternalError("no answer");
  backups.Write(store(),
                {.directory = directory,
                 .request_id = request_id,
                 .at = executor_.Wall()},
                [&result](absl::StatusOr<BackupManifest> manifest) {
                  result = std::move(manifest);
                });
  executor_.RunUntilIdle();
  return result;
}

std::map<std::string, std::string> ReadTree(const std::string& directory) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    files[fs::relative(entry.path(), directory).string()] =
        std::string(std::istreambuf_iterator<char>(in), {});
  }
  return files;
}

}  // namespace cohort::head
