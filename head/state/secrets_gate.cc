#include "head/state/secrets_gate.h"

#include <algorithm>

namespace cohort::head {

bool SecretsGate::Keeps(const JobSpec& spec) const {
  const auto& secrets = spec.launch().secrets();
  return box_ != nullptr &&
         std::any_of(secrets.begin(), secrets.end(), [this](const auto& each) {
           return !box_->Knows(each.second);
         });
}

std::optional<Wait> SecretsGate::WaitOf(const JobRecord& job) const {
  if (!Keeps(job)) return std::nullopt;
  return Wait{.kind = kind(),
              .text =
                  "its secrets are sealed with a key that this head does "
                  "not have, as a backup leaves it out",
              .lifted_by = {{.kind = "SECRETS_KEY",
                             .text = "add the lines of the other head's "
                                     "secrets.key to this one's, and start "
                                     "the head again"},
                            {.kind = "SUBMIT_AGAIN",
                             .of_request = true,
                             .text = "submit it again, with its secrets"}}};
}

JobGate::Elements SecretsGate::ElementsOf(const JobId& array,
                                          int64_t rest) const {
  const ArrayTable::Entry* const entry = jobs_.arrays().Find(array);
  if (entry == nullptr || !Keeps(*entry->record.spec)) return {};
  return {.count = rest};
}

}  // namespace cohort::head
