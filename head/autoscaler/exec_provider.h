#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/executor.h"
#include "common/thread_pool.h"
#include "head/autoscaler/provider.h"
#include "head/autoscaler/provider_watch.h"
#include "rpc/credential.h"

namespace cohort::head {

struct ExecProviderOptions {
  // Where programs of ours lie: `NAME` is `cohort-provider-NAME` there.
  std::string program_directory;
  std::string state_dir;  // of the head; may be kept in by a provider
  // Of the cluster.  Its secret stays here: a worker gets the token of its
  // instance.  (Those need an authority; without one, as --insecure has it, it
  // gets the head's own file.)
  rpc::Credential credential;
  // After which a program is killed.
  absl::Duration timeout = absl::Seconds(60);
  int programs_max = 8;  // at once; more wait
};

// Providers that are programs: they are run once for each call, and one that
// can watch goes on running (docs/autoscaling.md says how).
//
// Thread-compatible; the strand's.
class ExecProvider final : public Provider {
 public:
  // Results come on `strand`, which outlives it.
  ExecProvider(ExecProviderOptions options, Executor& strand);
  // Kills what runs.
  ~ExecProvider() override;

  ExecProvider(const ExecProvider&) = delete;
  ExecProvider& operator=(const ExecProvider&) = delete;

  // Where a worker finds the head, before the first call.
  void SetHeadAddress(std::string address) { address_ = std::move(address); }

  // From now on workers join by tokens of it.
  void SetCredential(const rpc::Credential& credential) {
    options_.credential = credential;
  }

  absl::Status Check(const std::string& program) const override;
  void Launch(const std::string& program, const LaunchOrder& order,
              Launched done) override;
  void Terminate(const std::string& program, const ClusterId& cluster,
                 const std::string& id, Done done) override;
  void List(const std::string& program, const ClusterId& cluster,
            Listed done) override;
  void Watch(const std::string& program, const ClusterId& cluster,
             Watched on_event) override;

 private:
  using Ended = std::function<void(absl::StatusOr<std::string> output)>;

  std::string PathOf(const std::string& program) const;
  std::vector<std::string> Environment(const ClusterId& cluster) const;
  // By which a worker is let in.
  std::string JoinVariable(const InstanceId& instance) const;
  void Run(std::vector<std::string> command,
           std::vector<std::string> environment, Ended ended);

  ExecProviderOptions options_;
  Executor& strand_;
  std::string address_;
  std::atomic<bool> is_stopping_ = false;
  ThreadPool pool_;
  std::unique_ptr<ProviderWatch> watch_;
};

// What `list` of a provider's program wrote; single instances that make no
// sense are left out.  InvalidArgument, saying what is wrong.
absl::StatusOr<std::vector<ProvidedInstance>> ParseInstances(
    const std::string& output);

}  // namespace cohort::head
