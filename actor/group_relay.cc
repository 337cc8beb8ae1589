#include "actor/group_relay.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "actor/call_error.h"
#include "actor/method.h"
#include "cohort/v1/actor.pb.h"
#include "common/status_macros.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

absl::Status IsAnother(const Member& member) {
  return SetReason(absl::UnavailableError(absl::StrCat(
                       "rank ", member.rank, " has started again meanwhile")),
                   kReasonNotStarted);
}

// Nobody here would say when it does.
absl::Status DoesNotServe(const Member& member) {
  return SetReason(absl::UnavailableError(absl::StrCat("rank ", member.rank,
                                                       " did not serve yet")),
                   kReasonNotStarted);
}

}  // namespace

GroupRelay::GroupRelay(Options options, ActorConnect connect,
                       Executor& executor, const Clock& clock, Random& random)
    : options_(std::move(options)),
      connect_(std::make_shared<ActorConnect>(std::move(connect))),
      executor_(executor),
      clock_(clock),
      random_(random) {}

void GroupRelay::Relay(const std::string& arguments, CallTarget::Done done) {
  absl::StatusOr<GroupCall> call = DecodeValue<GroupCall>(arguments);
  if (!call.ok() || call->members.empty()) {
    return std::move(done)(BadArguments());
  }
  // One is enough for all of a process.
  if (call->method == kFlushMethod) call->members.front().actors.clear();
  const Parts parts = SelfAndBranchesOf(call->members);
  const auto all = FanOutOf(
      *call, parts, [done = std::move(done)](SliceResult result) mutable {
        std::move(done)(EncodeValue(result));
      });
  SendParts(
      *call, parts, [this](const Member& member) { return PeerTo(member); },
      all);
}

absl::StatusOr<std::shared_ptr<CallTarget>> GroupRelay::PeerTo(
    const Member& member) {
  if (member.addresses.empty()) return DoesNotServe(member);
  std::shared_ptr<CallChannel> channel;
  bool is_news = false;
  {
    MutexLock lock(mutex_);
    if (!peers_.contains(member.rank)) {
      COHORT_RETURN_IF_ERROR(MakeRoom());
      peers_[member.rank].channel = NewChannel();
    }
    Peer& peer = peers_[member.rank];
    if (member.incarnation < peer.incarnation) return IsAnother(member);
    is_news = std::exchange(peer.incarnation, member.incarnation) !=
              member.incarnation;
    peer.last_used = ++uses_;
    channel = peer.channel;
  }
  if (is_news) {
    v1::ActorStanding standing;
    standing.set_job_id(options_.job_id);
    standing.set_state(v1::JOB_STATE_RUNNING);
    standing.set_incarnation(member.incarnation);
    standing.mutable_addresses()->Assign(member.addresses.begin(),
                                         member.addresses.end());
    standing.set_secret(options_.secret);
    channel->SetStanding(standing);
  }
  return channel;
}

absl::Status GroupRelay::MakeRoom() {
  if (peers_.size() < options_.channels_max) return absl::OkStatus();
  auto oldest = peers_.end();
  for (auto it = peers_.begin(); it != peers_.end(); ++it) {
    const bool is_idle = it->second.channel.use_count() == 1 &&
                         it->second.channel->pending() == 0;
    if (!is_idle) continue;
    if (oldest == peers_.end() ||
        it->second.last_used < oldest->second.last_used) {
      oldest = it;
    }
  }
  if (oldest == peers_.end()) {
    return SetReason(
        absl::ResourceExhaustedError(absl::StrCat(
            "this rank relays calls to ", peers_.size(),
            " others already, which is all that it can (wait for those of "
            "other slices)")),
        kReasonQueueFull);
  }
  // Destroyed elsewhere: this may be within an event of its own.
  executor_.PostAfter(absl::Milliseconds(1),
                      [channel = std::move(oldest->second.channel)] {});
  peers_.erase(oldest);
  return absl::OkStatus();
}

std::shared_ptr<CallChannel> GroupRelay::NewChannel() const {
  return std::make_shared<CallChannel>(
      CallChannelOptions{.job_id = options_.job_id, .is_told = false},
      [connect = connect_](const auto& addresses, const std::string& secret) {
        return (*connect)(addresses, secret);
      },
      executor_, clock_, random_);
}

}  // namespace cohort::actor
