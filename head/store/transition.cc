#include "head/store/transition.h"

#include <iterator>

namespace cohort::head {

void Transition::Add(Batch rows) {
  batch_.insert(batch_.end(), std::make_move_iterator(rows.begin()),
                std::make_move_iterator(rows.end()));
}

Batch Transition::TakeBatch() {
  if (cluster_.has_value()) batch_.push_back(ToWrite(*cluster_));
  cluster_.reset();
  return std::exchange(batch_, {});
}

}  // namespace cohort::head
