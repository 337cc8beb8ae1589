#include "worker/own_drain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/log.h"
#include "rpc/methods.h"
#include "rpc/wire_values.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kEmptyPeriod = absl::Milliseconds(100);
constexpr absl::Duration kDrainDeadline = absl::Seconds(5);
constexpr absl::Duration kDrainAgain = absl::Seconds(1);

}  // namespace

OwnDrain::OwnDrain(const NodeId& node, rpc::Channel& head,
                   const NodeState& state, Executor& strand, const Clock& clock,
                   Random& random)
    : node_(node),
      head_(head),
      state_(state),
      strand_(strand),
      clock_(clock),
      random_(random) {}

void OwnDrain::Begin(absl::Duration deadline,
                     absl::AnyInvocable<void() &&> done) {
  until_ = clock_.Monotonic() + deadline;
  done_ = std::move(done);
  Look();
  // A node without anything just goes, and leaves no drain behind.
  if (done_) Ask();
}

void OwnDrain::Ask() {
  v1::DrainNodeRequest request;
  // One that says how long it has now: an answer to an older one would not do.
  request.set_request_id(absl::StrCat("own-drain-", random_.Uint64()));
  request.set_node(node_.ToHex());
  request.set_reason("its worker was told to end (SIGTERM)");
  *request.mutable_deadline() =
      rpc::ToWire(std::max(until_ - clock_.Monotonic(), absl::ZeroDuration()));
  rpc::Call(head_, rpc::kDrainNode, request, {.deadline = kDrainDeadline},
            strand_, [this](absl::StatusOr<v1::DrainNodeResponse> answer) {
              OnAnswer(answer);
            });
}

void OwnDrain::OnAnswer(const absl::StatusOr<v1::DrainNodeResponse>& answer) {
  if (!done_) return;
  if (answer.ok()) {
    COHORT_LOG(kInfo, "drained_itself");
    return;
  }
  COHORT_LOG(kWarning, "not_drained", {"why", answer.status()});
  strand_.PostAfter(kDrainAgain, [this] {
    if (done_) Ask();
  });
}

void OwnDrain::Look() {
  if (state_.IsEmpty() || clock_.Monotonic() >= until_ + kMoveTime) {
    return std::exchange(done_, nullptr)();
  }
  strand_.PostAfter(kEmptyPeriod, [this] { Look(); });
}

}  // namespace cohort::worker
