#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/testing/temp_dir.h"
#include "shm/arena.h"
#include "trainer/comm/shm_comm.h"
#include "trainer/comm/testing/ranks.h"

namespace cohort::trainer {

// Runs `body(comm)` for each rank of a gang whose ranks are threads and reduce
// in shared memory, which is made in `directory`.  Returns when all are done.
inline void RunThreadGangIn(const std::string& directory, int world,
                            const std::function<void(Comm&)>& body) {
  const auto arena = shm::Arena::Create(
      directory, {.attempt = "thread-gang", .epoch = 1, .local_world = world});
  COHORT_CHECK(arena.ok()) << arena.status();
  RunRanks(world, [&](int rank) {
    const auto place = shm::ArenaPlace::Claim(directory, rank);
    COHORT_CHECK(place.ok()) << place.status();
    const auto comm = ShmComm::Create(**place, /*epoch=*/1);
    COHORT_CHECK(comm.ok()) << comm.status();
    body(**comm);
    // Memory that peers still reduce in must not go away under them.
    COHORT_CHECK((*comm)->Barrier(absl::Minutes(1)).ok());
  });
}

inline void RunThreadGang(int world, const std::function<void(Comm&)>& body) {
  const TempDir directory;
  RunThreadGangIn(directory.path(), world, body);
}

}  // namespace cohort::trainer
