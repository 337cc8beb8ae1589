#pragma once

#include "common/secret_box.h"
#include "head/state/job_gate.h"
#include "head/state/job_table.h"

namespace cohort::head {

// Jobs with secrets that this head has no key for, as those of a backup.
class SecretsGate final : public JobGate {
 public:
  // `box` is null where nothing is sealed.  Both outlive it.
  SecretsGate(const JobTable& jobs, const SecretBox* box)
      : jobs_(jobs), box_(box) {}

  WaitKind kind() const override { return v1::WAIT_KIND_SECRETS; }
  bool Pass(const JobRecord& job) override { return !Keeps(job); }
  bool Keeps(const JobRecord& job) const override { return Keeps(*job.spec); }
  std::optional<Wait> WaitOf(const JobRecord& job) const override;
  Elements ElementsOf(const JobId& array, int64_t rest) const override;

 private:
  bool Keeps(const JobSpec& spec) const;

  const JobTable& jobs_;
  const SecretBox* const box_;
};

}  // namespace cohort::head
