#include "actor/group_tree.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "actor/handle.h"
#include "actor/method.h"
#include "common/status_macros.h"

namespace cohort::actor {
namespace {

SliceResult Failed(int rank, absl::Status why) {
  return {.failed_rank = rank, .status = std::move(why), .values = {}};
}

// What a part that is one rank answered.
SliceResult OfRank(int rank, absl::StatusOr<std::string> bytes) {
  if (!bytes.ok()) return Failed(rank, std::move(bytes).status());
  SliceResult result;
  result.values.push_back(*std::move(bytes));
  return result;
}

// What a part of several answered, by its first.
SliceResult OfBranch(int first, const absl::StatusOr<std::string>& bytes) {
  if (!bytes.ok()) return Failed(first, bytes.status());
  absl::StatusOr<SliceResult> result = DecodeValue<SliceResult>(*bytes);
  if (!result.ok()) return Failed(first, BadResult());
  return *std::move(result);
}

absl::Status SendPart(const GroupCall& call, std::span<const Member> part,
                      size_t index, const Peers& peers,
                      const std::shared_ptr<FanOut>& all) {
  const int first = part.front().first_rank();
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<CallTarget> peer,
                          peers(part.front()));
  if (part.size() == 1 && part.front().actors.size() <= 1) {
    const char* method = kFlushMethod;
    if (call.method != kFlushMethod) {
      COHORT_ASSIGN_OR_RETURN(method, RegisteredMethod(call.method));
    }
    all->Carries(
        peer, peer->Call({method, KeptText(call.group), part.front().actor()},
                         call.arguments, [all, index, first](auto bytes) {
                           all->Set(index, OfRank(first, std::move(bytes)));
                         }));
    return absl::OkStatus();
  }
  const GroupCall below = {.method = call.method,
                           .group = call.group,
                           .arguments = call.arguments,
                           .reducer = call.reducer,
                           .members = {part.begin(), part.end()}};
  COHORT_ASSIGN_OR_RETURN(std::string arguments, EncodeValue(below));
  all->Carries(peer, peer->Call(kRelayMethod, std::move(arguments),
                                [all, index, first](auto bytes) {
                                  all->Set(index, OfBranch(first, bytes));
                                }));
  return absl::OkStatus();
}

}  // namespace

Parts BranchesOf(std::span<const Member> members) {
  const size_t count = std::min(members.size(), kBranchesMax);
  Parts parts;
  for (size_t i = 0; i < count; ++i) {
    const size_t begin = members.size() * i / count;
    const size_t end = members.size() * (i + 1) / count;
    parts.push_back(members.subspan(begin, end - begin));
  }
  return parts;
}

Parts SelfAndBranchesOf(std::vector<Member>& members) {
  std::vector<Member> own(std::max<size_t>(1, members.front().actors.size()),
                          members.front());
  for (size_t i = 0; i < own.size() && own.size() > 1; ++i) {
    own[i].actors = {members.front().actors[i]};
  }
  const size_t count = own.size();
  members.front() = std::move(own.back());
  own.pop_back();
  members.insert(members.begin(), std::make_move_iterator(own.begin()),
                 std::make_move_iterator(own.end()));
  const std::span<const Member> all = members;
  Parts parts = EachOf(all.first(count));
  const Parts others = BranchesOf(all.subspan(count));
  parts.insert(parts.end(), others.begin(), others.end());
  return parts;
}

Parts EachOf(std::span<const Member> members) {
  Parts parts;
  for (size_t i = 0; i < members.size(); ++i) {
    parts.push_back(members.subspan(i, 1));
  }
  return parts;
}

std::shared_ptr<FanOut> FanOutOf(const GroupCall& call, const Parts& parts,
                                 FanOut::Done done) {
  return std::make_shared<FanOut>(parts.size(), call.reducer,
                                  call.method == kFlushMethod
                                      ? FanOut::Ends::kWithAll
                                      : FanOut::Ends::kWithFirstFailure,
                                  std::move(done));
}

void SendParts(const GroupCall& call, const Parts& parts, const Peers& peers,
               const std::shared_ptr<FanOut>& all) {
  for (size_t i = 0; i < parts.size(); ++i) {
    absl::Status sent = SendPart(call, parts[i], i, peers, all);
    if (!sent.ok()) {
      all->Set(i, Failed(parts[i].front().first_rank(), std::move(sent)));
    }
  }
}

}  // namespace cohort::actor
