#pragma once

#include <memory>

#include "actor/ring_way.h"
#include "cohort/v1/actor.pb.h"
#include "shm/ring_pair.h"

namespace cohort::actor {

// How an actor's process offers a ring to a caller on its machine
// (docs/design/0019-ring.md).
v1::RingOffer OfferOf(const shm::RingPlace& place);

// The ring that is offered, for the caller.  Null: it cannot be had, or this
// process has kRingsOpened already; the stream does as well.  Thread-safe.
std::shared_ptr<RingWay<v1::ActorResults>> OpenRing(const v1::RingOffer& offer);

}  // namespace cohort::actor
