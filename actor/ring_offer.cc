#include "actor/ring_offer.h"

#include <atomic>
#include <cstddef>
#include <utility>

#include "actor/call_limits.h"

namespace cohort::actor {
namespace {

using Ring = RingWay<v1::ActorResults>;

// Of this process.
std::atomic<int> rings_opened{0};

}  // namespace

v1::RingOffer OfferOf(const shm::RingPlace& place) {
  v1::RingOffer offer;
  offer.set_pid(place.pid);
  offer.set_fd(place.fd);
  offer.set_token(place.token);
  return offer;
}

std::shared_ptr<Ring> OpenRing(const v1::RingOffer& offer) {
  // Counts the one that is made, from before it is.
  const std::shared_ptr<void> counted(nullptr,
                                      [](std::nullptr_t) { --rings_opened; });
  if (rings_opened++ >= kRingsOpened) return nullptr;
  auto pair = shm::RingPair::Open(
      {.pid = offer.pid(), .fd = offer.fd(), .token = offer.token()});
  if (!pair.ok()) return nullptr;
  return {new Ring(*std::move(pair)), [counted](Ring* ring) { delete ring; }};
}

}  // namespace cohort::actor
