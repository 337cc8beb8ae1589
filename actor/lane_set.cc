#include "actor/lane_set.h"

#include <iterator>
#include <utility>

namespace cohort::actor {

LaneSet::LaneSet(std::vector<CallLane> lanes) {
  for (const CallLane& lane : lanes) {
    for (uint32_t actor = 0; actor < lane.actors; ++actor) {
      const size_t number = lanes_.size();
      lanes_.push_back({.options = lane, .number = number});
    }
  }
}

Lane* LaneSet::Find(const std::string& group) {
  for (size_t i = 0; i < lanes_.size(); i += lanes_[i].options.actors) {
    if (lanes_[i].options.group == group) return &lanes_[i];
  }
  return nullptr;
}

bool LaneSet::IsThere(const Method& method, uint32_t actor) const {
  if (actor >= lanes_.front().options.actors) return false;
  return method.lane != nullptr;
}

Lane& LaneSet::Of(const Method& method, uint32_t actor) {
  if (!IsThere(method, actor)) return lanes_.front();
  const bool is_shared = method.lane->options.actors == 1;
  return lanes_[method.lane->number + (is_shared ? 0 : actor)];
}

bool LaneSet::IsSurplus(const Lane& lane) {
  return lane.runners - lane.given_way > lane.options.max_concurrency;
}

void LaneSet::Claim(Lane& lane, Claims& claims) {
  size_t free = lane.line.size();
  for (;
       free > 0 && lane.runners - lane.given_way < lane.options.max_concurrency;
       --free) {
    ++lane.runners;
    claims.push_back(&lane);
  }
}

void LaneSet::DropTurn(const CallStream& caller, Lane& lane) {
  for (auto turn = lane.line.rbegin(); turn != lane.line.rend(); ++turn) {
    if (turn->get() != &caller) continue;
    lane.line.erase(std::next(turn).base());
    return;
  }
}

void LaneSet::DropTurns(const CallStream& caller) {
  for (Lane& lane : lanes_) {
    std::erase_if(lane.line,
                  [&](const auto& each) { return each.get() == &caller; });
  }
}

std::vector<std::deque<std::shared_ptr<CallStream>>> LaneSet::Clear() {
  std::vector<std::deque<std::shared_ptr<CallStream>>> lines;
  for (Lane& lane : lanes_) lines.push_back(std::exchange(lane.line, {}));
  return lines;
}

}  // namespace cohort::actor
