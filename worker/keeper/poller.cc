#include "worker/keeper/poller.h"

#include <sys/epoll.h>

namespace cohort::keeper {

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

void Poller::Watch(int fd, Source source, uint32_t index, bool writable) {
  epoll_event event{};
  event.events = EPOLLIN | (writable ? EPOLLOUT : 0u);
  event.data.u64 = static_cast<uint64_t>(source) << 32 | index;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
}

void Poller::Forget(int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

std::vector<Ready> Poller::Wait(int timeout_ms) {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, timeout_ms);
  std::vector<Ready> ready;
  for (int i = 0; i < count; ++i) {
    ready.push_back({static_cast<Source>(events[i].data.u64 >> 32),
                     static_cast<uint32_t>(events[i].data.u64)});
  }
  return ready;
}

}  // namespace cohort::keeper
