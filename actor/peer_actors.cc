#include "actor/peer_actors.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "actor/actor_at.h"
#include "actor/actor_end.h"
#include "actor/call_error.h"
#include "actor/options.h"
#include "common/status_util.h"

namespace cohort::actor {
namespace {

constexpr absl::Duration kReleaseAfter = absl::Milliseconds(1);

absl::Status TooManyPeers(size_t most) {
  return SetReason(absl::ResourceExhaustedError(absl::StrCat(
                       "this process has handles of ", most,
                       " actors, which is all that it can call (let some go)")),
                   kReasonQueueFull);
}

}  // namespace

class PeerActors::Peer final : public CallTarget {
 public:
  Peer(ActorRef ref, const std::shared_ptr<ActorConnect>& connect,
       Executor& executor, const Clock& clock, Random& random,
       shm::Spinner* spinner)
      : ref_(std::move(ref)),
        channel_(
            CallChannelOptions{
                .job_id = std::string(ref_.job.bytes()),
                .max_pending_calls = ActorOptions().max_pending_calls,
                .spinner = spinner},
            [connect](const auto& addresses, const std::string& secret) {
              return (*connect)(addresses, secret);
            },
            executor, clock, random) {}

  uint64_t Call(CalledMethod method, std::string arguments,
                Done done) override {
    return channel_.Call(method, std::move(arguments), std::move(done));
  }
  void Cancel(uint64_t call) override { channel_.Cancel(call); }
  void Look(uint64_t call, absl::FunctionRef<bool()> finished) override {
    channel_.Look(call, finished);
  }
  std::string WaitReason(uint64_t call) const override {
    return channel_.WaitReason(call);
  }
  absl::StatusOr<ActorRef> Ref() const override { return ref_; }

  const ActorRef& ref() const { return ref_; }
  CallChannel& channel() { return channel_; }

 private:
  const ActorRef ref_;
  CallChannel channel_;
};

PeerActors::PeerActors(Options options, ConnectHead connect_head,
                       ActorConnect connect, Executor& session, Executor& calls,
                       const Clock& clock, Random& random)
    : options_(options),
      connect_head_(std::move(connect_head)),
      connect_(std::make_shared<ActorConnect>(std::move(connect))),
      session_executor_(session),
      calls_(calls),
      clock_(clock),
      random_(random) {}

PeerActors::~PeerActors() = default;

std::shared_ptr<CallTarget> PeerActors::TargetOf(const ActorRef& ref) {
  MutexLock lock(mutex_);
  if (const absl::Status open = OpenSession(); !open.ok()) {
    return NoTarget(open);
  }
  const Key key = {ref.job, ref.secret, ref.slot};
  const auto found = peers_.find(key);
  if (found != peers_.end()) return ActorAt(found->second, ref.actor);
  if (peers_.size() >= look_at_) ForgetUnused();
  if (peers_.size() >= options_.channels_max) {
    return NoTarget(TooManyPeers(options_.channels_max));
  }
  ActorRef process = ref;
  process.actor = 0;
  const auto peer = std::make_shared<Peer>(process, connect_, calls_, clock_,
                                           random_, options_.spinner);
  peers_[key] = peer;
  session_->Watch(ref.job, ref.secret);
  return ActorAt(peer, ref.actor);
}

size_t PeerActors::channels() const {
  MutexLock lock(mutex_);
  return peers_.size();
}

absl::Status PeerActors::OpenSession() {
  if (!over_.ok() || session_.has_value()) return over_;
  absl::StatusOr<std::unique_ptr<rpc::Channel>> head = connect_head_();
  if (!head.ok()) return head.status();
  head_ = *std::move(head);
  session_.emplace(
      DriverSession::Options{.only_watches = true}, *head_, session_executor_,
      session_random_,
      DriverSession::Events{
          .on_standing = [this](const auto& told) { OnStanding(told); },
          .on_room_wanted = [](bool /*wanted*/) {},
          .on_over = [this](const absl::Status& why) { OnOver(why); }});
  return absl::OkStatus();
}

// Of those that nobody holds, and that have no calls.
void PeerActors::ForgetUnused() {
  std::vector<std::shared_ptr<Peer>> unused;
  for (auto it = peers_.begin(); it != peers_.end();) {
    const bool is_used =
        it->second.use_count() > 1 || it->second->channel().pending() > 0;
    if (!is_used) unused.push_back(std::move(it->second));
    it = is_used ? std::next(it) : peers_.erase(it);
  }
  look_at_ = std::max<size_t>(16, 2 * peers_.size());
  look_at_ = std::min(look_at_, options_.channels_max);
  for (const auto& peer : unused) {
    const ActorRef& ref = peer->ref();
    const auto other = peers_.lower_bound({ref.job, ref.secret, 0});
    const bool is_needed = other != peers_.end() &&
                           std::get<JobId>(other->first) == ref.job &&
                           std::get<std::string>(other->first) == ref.secret;
    if (!is_needed) session_->Unwatch(ref.job, ref.secret);
  }
  // Elsewhere: this may be within an event of one of them.
  calls_.PostAfter(kReleaseAfter, [unused = std::move(unused)] {});
}

void PeerActors::OnStanding(const v1::ActorStanding& told) {
  const absl::StatusOr<JobId> job = JobId::FromBytes(told.job_id());
  if (!job.ok()) return;
  std::vector<std::shared_ptr<Peer>> of_job;
  {
    MutexLock lock(mutex_);
    for (auto it = peers_.lower_bound({*job, "", 0});
         it != peers_.end() && std::get<JobId>(it->first) == *job; ++it) {
      of_job.push_back(it->second);
    }
  }
  for (const auto& peer : of_job) {
    const ActorRef& ref = peer->ref();
    const auto standing = StandingFor(told, ref.slot, ref.secret);
    if (standing.has_value()) peer->channel().SetStanding(*standing);
  }
}

void PeerActors::OnOver(const absl::Status& why) {
  std::map<Key, std::shared_ptr<Peer>> peers;
  const absl::Status over = SetReason(
      absl::FailedPreconditionError(absl::StrCat(
          "the head does not tell this process of actors: ", why.message())),
      kReasonSessionOver);
  {
    MutexLock lock(mutex_);
    over_ = over;
    peers = peers_;
  }
  for (const auto& [key, peer] : peers) peer->channel().End(over);
}

}  // namespace cohort::actor
