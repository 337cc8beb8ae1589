#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/job.h"
#include "client/job_file.h"
#include "client/node.h"
#include "client/package.h"

namespace cohort {

namespace rpc {
class Channel;
}  // namespace rpc

struct ClusterOptions {
  // The head, HOST:PORT.  Empty: COHORT_ADDRESS, else the address that
  // `cohort up` keeps in its default state directory.
  std::string address;
  // Empty: COHORT_CREDENTIAL_FILE, else the credential in that directory.
  std::string credential_file;
  // How long a call tries unless it has a deadline of its own.  A head that its
  // supervisor restarts is back well before.
  absl::Duration deadline = absl::Seconds(30);
  // SubmitAsync refuses more than this in flight.  4096 specs of 1 KiB are
  // 4 MiB.
  size_t submits_in_flight_max = 4096;
  // Called, on any thread, each time a call did not reach the head and will be
  // retried.  For "waiting for the head" lines.  May be null.
  std::function<void(const absl::Status& why)> on_retry;
};

struct SubmitOptions {
  // Names this submission: repeating the same id and spec within a day, from
  // any process, returns the first job.  At most 128 bytes; empty: a fresh id.
  std::string request_id;
  std::optional<absl::Duration> deadline;
};

struct DrainOptions {
  std::string reason;  // one line, for people
  // How long what runs there may go on; then it is ended, without charge, and
  // starts again elsewhere.
  absl::Duration deadline = absl::InfiniteDuration();
};

using LogStream = v1::LogStream;

struct LogOptions {
  std::vector<int> ranks;  // empty: all
  bool standard_output = true;
  bool standard_error = false;
  // 0: the last one.
  int attempt = 0;
  // Continue, across attempts, until the job has ended.
  bool follow = false;
  // At most this many of the last lines that each rank has at the beginning, of
  // both streams together.
  std::optional<int> tail;
  // Leaves out lines that began before it, by the clocks of the ranks' nodes. A
  // log without times is read whole.
  std::optional<absl::Time> since;
  // While following, the sink gets a chunk without data this often, so that it
  // can do other work.
  absl::Duration tick = absl::InfiniteDuration();
  // Of the whole read.  nullopt: none when following; otherwise the read ends
  // when nothing came for ClusterOptions::deadline.
  std::optional<absl::Duration> deadline;
};

// A piece of what a rank wrote, exactly once and in order for each rank and
// stream, also across restarts of the head; among these in the order of `at`,
// which in a read that follows holds for what is 0.1 s apart.
struct LogChunk {
  int rank = 0;
  LogStream stream = v1::LOG_STREAM_STDOUT;
  int attempt = 0;
  int64_t offset = 0;  // of the first byte, within the attempt
  absl::string_view data;
  // When its worker read it, by that node's clock; InfinitePast: not known.
  absl::Time at = absl::InfinitePast();
  // Bytes before this that the worker had rotated away.
  int64_t skipped = 0;
  // The node, by name, that wrote it and is gone: the head has kept this, and
  // nothing of the log before it.  Empty: the node is here.
  std::string gone_node;
};

struct UploadOptions {
  // Of each part of 1 MiB, so that a slow upload may take longer.
  std::optional<absl::Duration> deadline;
  // Called before each part with the number of bytes that the head has.
  std::function<void(int64_t)> on_progress;
};

struct EventOptions {
  // Only events with higher numbers: continues an earlier read.
  uint64_t after = 0;
  // nullopt: from the first event that is kept.
  std::optional<absl::Time> since;
  // An array's id selects its elements too.
  std::optional<JobId> job;
  std::string node;  // name or id; empty: any
  // Continue with new events.
  bool follow = false;
  // Of the whole read.  nullopt: none when following; otherwise
  // ClusterOptions::deadline for each page.
  std::optional<absl::Duration> deadline;
};

struct ExplainOptions {
  // Explains why it waited at this time.
  std::optional<absl::Time> at;
  // Also all recorded reasons.
  bool history = false;
  std::optional<absl::Duration> deadline;
};

// A cluster, seen from a program: submit jobs, ask about them, wait, stop.
//
// Connects by itself when it is called and again after the head was restarted:
// each call tries until its deadline, and a retried change is one request to
// the head, so it happens once.  Thread-safe; one is enough for a process.
// Calls block the calling thread, except SubmitAsync.
//
// CL-1: a Submit that answered OK has made exactly one job, however often the
//       head or the connection died meanwhile.
// CL-2: an answer of a head with a lower term than was seen before is not
//       used.
// CL-3: once a cluster has answered, another one at the same address is
//       refused: FailedPrecondition, reason "other_cluster".
//
// Errors of every call, besides those that it names: Unavailable (reason
// "unreachable" when nobody answers) and DeadlineExceeded at the deadline;
// Unauthenticated for a wrong credential; PermissionDenied for one that is
// limited to a run.  Messages say what to do.
class Cluster {
 public:
  // Finds address and credential; does not wait for the head.  InvalidArgument
  // for an address that cannot be parsed; NotFound when no address or no
  // credential file is there; otherwise as rpc::Credential::Load.
  static absl::StatusOr<std::unique_ptr<Cluster>> Connect(
      ClusterOptions options = {});

  // As Connect, over a channel that is there already: for a head in the same
  // process.  Of `options`, address and credential_file are not looked at.
  static std::unique_ptr<Cluster> ConnectThrough(
      std::unique_ptr<rpc::Channel> channel, ClusterOptions options = {});

  // Submissions in flight end as CANCELLED; their `done` may run within this.
  // REQUIRES: no other call is running.
  ~Cluster();

  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // ---- changes ----

  // Makes a job.  InvalidArgument: it can never run as written; AlreadyExists:
  // the request id was used with another spec; FailedPrecondition: the head
  // does not have the package; ResourceExhausted: too many jobs wait.
  absl::StatusOr<JobId> Submit(const JobSpec& spec, SubmitOptions options = {});

  // As Submit, without blocking.  `done` runs exactly once, on a thread of
  // this, never within this call; it must not block.  ResourceExhausted when
  // submits_in_flight_max are.
  void SubmitAsync(const JobSpec& spec, SubmitOptions options,
                   absl::AnyInvocable<void(absl::StatusOr<JobId> job) &&> done);

  // Gives the head a package, going on where an earlier upload stopped.  The
  // head keeps one that no job names for an hour.  ResourceExhausted: no room;
  // DataLoss: what arrived is not what was sent (nothing is kept).
  absl::Status UploadPackage(const Package& package,
                             const UploadOptions& options = {});

  // Asks a job to stop; OK also when it has ended.  NotFound.
  absl::Status Stop(JobId job,
                    std::optional<absl::Duration> deadline = std::nullopt);

  // Decides about an orphan, an attempt from before the head's store was
  // restored: Adopt continues its job with it, End ends its ranks and continues
  // the job without it.  Both return the job.  NotFound: it is not an orphan;
  // FailedPrecondition, saying why: it cannot be adopted.
  absl::StatusOr<Adoption> Adopt(
      AttemptId attempt, std::optional<absl::Duration> deadline = std::nullopt);
  absl::StatusOr<JobId> End(
      AttemptId attempt, std::optional<absl::Duration> deadline = std::nullopt);

  // Has the head write a backup of its store to `directory`, a path of its
  // machine that must not exist yet.  AlreadyExists: it does; InvalidArgument:
  // it cannot be one; ResourceExhausted: no room there, or another backup is
  // being written.  On an error nothing is left there, but for
  // DeadlineExceeded: then it goes on.
  absl::StatusOr<BackupSummary> BackupStore(
      const std::string& directory,
      std::optional<absl::Duration> deadline = std::nullopt);
  // Nothing new is placed on a node until it is undrained, whatever restarts
  // meanwhile.  `node` is its id, the beginning of one, or its name.  Gives the
  // node as it is then.  NotFound; FailedPrecondition when several are meant,
  // naming them; InvalidArgument; ResourceExhausted.
  absl::StatusOr<Node> Drain(
      const std::string& node, const DrainOptions& options,
      std::optional<absl::Duration> deadline = std::nullopt);
  // OK too when it is not drained.  Errors as Drain.
  absl::StatusOr<Node> Undrain(
      const std::string& node,
      std::optional<absl::Duration> deadline = std::nullopt);

  // Keeps a job that waits from starting until it is released; of an array
  // those elements that wait.  NotFound; FailedPrecondition: nothing of it
  // waits.
  absl::Status Hold(JobId job,
                    std::optional<absl::Duration> deadline = std::nullopt);
  // OK too when it is not held.  NotFound; FailedPrecondition: it has ended.
  absl::Status Release(JobId job,
                       std::optional<absl::Duration> deadline = std::nullopt);
  // Forgets an ended job, or an array; what its ranks left in the workers' own
  // directories goes within minutes, what is below its storage_path stays.
  // NotFound; FailedPrecondition: it has not ended, or others wait for it.
  absl::Status Remove(JobId job,
                      std::optional<absl::Duration> deadline = std::nullopt);

  // Changes how many ranks a job with RestartPolicy::kOne or kNone has: new
  // ones are placed together or wait, those of the highest numbers are stopped.
  // NotFound; InvalidArgument; FailedPrecondition: its policy is kAll, or it
  // ends or has ended.
  absl::Status ResizeJob(JobId job, int num_workers,
                         std::optional<absl::Duration> deadline = std::nullopt);

  // ---- reads ----

  // NotFound.
  absl::StatusOr<Job> Get(
      JobId job, std::optional<absl::Duration> deadline = std::nullopt) const;
  // What the head keeps of a job's reports, thinned out; no points: it reported
  // none with a step.  NotFound.
  absl::StatusOr<v1::MetricsHistory> MetricsHistory(
      JobId job, std::optional<absl::Duration> deadline = std::nullopt) const;
  // Why a job waits, and what would let it start.  NotFound.
  absl::StatusOr<Explanation> Explain(JobId job,
                                      ExplainOptions options = {}) const;
  // Newest first, without ranks.  The deadline is for each page of it.
  absl::StatusOr<JobList> List(
      const ListOptions& options = {},
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // Blocks until the job has ended.  NotFound; DeadlineExceeded, also when the
  // head could not be reached, when it has not ended by then.
  absl::StatusOr<Job> Wait(
      JobId job, absl::Duration deadline = absl::InfiniteDuration()) const;
  // Gives what the job's ranks wrote to `sink`, on this thread; an error from
  // it ends the read and is returned.  NotFound: the job or the rank;
  // Unavailable: the node that has the log is away.
  absl::Status Logs(
      JobId job, const LogOptions& options,
      absl::FunctionRef<absl::Status(const LogChunk&)> sink) const;

  // The files in the job's run directory on its nodes, and what its ranks left
  // in their working directories, as "work-<attempt>/<node>/...".  NotFound:
  // the job; ResourceExhausted: there are too many to list.
  absl::StatusOr<JobFiles> Files(
      JobId job, std::optional<absl::Duration> deadline = std::nullopt) const;
  // Gives one of them to `sink`, in order, on this thread; an error from it
  // ends the read and is returned.  `deadline` is for each piece.  NotFound:
  // the job or the file; Unavailable: its node is away.
  absl::Status ReadFile(
      JobId job, const JobFile& file,
      absl::FunctionRef<absl::Status(absl::string_view bytes)> sink,
      std::optional<absl::Duration> deadline = std::nullopt) const;

  // Gives what happened to `sink`, in order, each event once, also across
  // restarts of the head; where its store was restored meanwhile, goes on where
  // the histories part (EventPlace::history_replaced).  On this thread; an
  // error from `sink` ends the read and is returned.  NotFound: the node;
  // OutOfRange: `after` is beyond the last event.
  absl::Status Events(const EventOptions& options,
                      absl::FunctionRef<absl::Status(const Event& event,
                                                     const EventPlace& place)>
                          sink) const;

  absl::StatusOr<std::vector<Node>> Nodes(
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // Everything about one, with the last that happened to it; `node` as for
  // Drain.
  absl::StatusOr<NodeDetails> GetNode(
      const std::string& node,
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // Newest first, at most 1,000.
  absl::StatusOr<DriverList> Drivers(
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // ---- credentials (docs/security.md) ----

  // Makes a token: with ROLE_JOIN for a worker that joins, with another role
  // for the user `name`, who sees and changes the jobs of `namespaces` (empty:
  // of all).  It is valid for `ttl`, or until it is revoked.  Gives its secret,
  // as rpc::Credential's bytes, which is shown once.  InvalidArgument;
  // AlreadyExists: the user is there.
  absl::StatusOr<std::string> CreateToken(
      v1::Role role, const std::string& name,
      const std::vector<std::string>& namespaces, absl::Duration ttl,
      std::optional<absl::Duration> deadline = std::nullopt);
  absl::StatusOr<std::vector<Token>> ListTokens(
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // Gives `each` the calls of the audit log since then, of `principal` ("ann",
  // "user/ann"; empty: of all), oldest first.
  absl::Status Audit(
      absl::Time since, const std::string& principal,
      absl::FunctionRef<void(const AuditEntry&)> each,
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // NotFound.
  absl::StatusOr<Token> RevokeToken(
      const std::string& id,
      std::optional<absl::Duration> deadline = std::nullopt);
  // The certificate authorities by which the head is known: one, and the next
  // while a rotation goes on, with the nodes that do not have that yet.
  absl::StatusOr<AuthorityList> Authorities(
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // Begins a rotation, unless one goes on.
  absl::StatusOr<AuthorityList> RotateAuthority(
      std::optional<absl::Duration> deadline = std::nullopt);
  // Ends that to the authority with this fingerprint.  FailedPrecondition:
  // there is none, or nodes do not have it and it is not forced.
  absl::StatusOr<AuthorityList> FinishRotation(
      const std::string& fingerprint, bool force,
      std::optional<absl::Duration> deadline = std::nullopt);

  // ---- a cluster that grows and shrinks (docs/autoscaling.md) ----

  // Replaces the cluster file: YAML, which the head reads; its provider is a
  // program of the head's machine.  InvalidArgument, with the line;
  // FailedPrecondition: instances are with another provider.
  absl::Status ApplyClusterFile(
      const std::string& text,
      std::optional<absl::Duration> deadline = std::nullopt);
  // Keeps room for this in the cluster, used or not, for `ttl` or until it is
  // withdrawn; replaces the caller's request of the same name.
  // InvalidArgument; ResourceExhausted: too many.
  absl::Status RequestCapacity(
      const CapacityRequest& request,
      absl::Duration ttl = absl::InfiniteDuration(),
      std::optional<absl::Duration> deadline = std::nullopt);
  // Of `owner`, as a CapacityRequest names it; empty: of the caller.  NotFound;
  // PermissionDenied: only an admin withdraws another's.
  absl::Status WithdrawCapacity(
      const std::string& name, const std::string& owner = "",
      std::optional<absl::Duration> deadline = std::nullopt);
  absl::StatusOr<Autoscaling> GetAutoscaling(
      std::optional<absl::Duration> deadline = std::nullopt) const;

  // The stacks of the threads of a rank's process, as its node's eu-stack and
  // py-spy show them; it stands still meanwhile.  NotFound: the job or the
  // rank; FailedPrecondition: that rank has no process (reason "no_process"),
  // or its node cannot show its stacks, saying what to do (reason "no_stack").
  absl::StatusOr<RankStack> Stack(
      JobId job, int rank,
      std::optional<absl::Duration> deadline = std::nullopt) const;
  // The last calls, 10,000 at most, that the process of an actor's rank served.
  // Errors: as Stack.
  absl::StatusOr<RankCalls> ServedCalls(
      JobId job, int rank,
      std::optional<absl::Duration> deadline = std::nullopt) const;
  absl::StatusOr<ClusterResources> Resources(
      std::optional<absl::Duration> deadline = std::nullopt) const;
  absl::StatusOr<ClusterStatus> Status(
      std::optional<absl::Duration> deadline = std::nullopt) const;

  // The head's, as given or found.
  const std::string& address() const;

 private:
  class Core;

  explicit Cluster(std::unique_ptr<Core> core);

  const std::unique_ptr<Core> core_;
};

}  // namespace cohort
