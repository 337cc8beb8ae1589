#include "actor/call_notes.h"

#include "absl/time/time.h"

#include "actor/method.h"

namespace cohort::actor {
namespace {

uint32_t BeginningOf(const std::string& id) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4 && i < id.size(); ++i) {
    number = number << 8 | static_cast<unsigned char>(id[i]);
  }
  return number;
}

}  // namespace

int64_t CallNotes::Now() const {
  return served_ == nullptr ? 0 : absl::ToUnixMicros(clock_->Wall());
}

uint32_t CallNotes::AddMethod(const std::string& mangled) {
  return served_ == nullptr ? 0 : served_->AddMethod(MethodText(mangled));
}

CallNotes::Note CallNotes::Begin(uint32_t method, const std::string& caller,
                                 int64_t queued_us, int64_t now_us) {
  if (served_ == nullptr) return {};
  if (free_tracks_.empty()) free_tracks_.push_back(tracks_++);
  Note note{.track = free_tracks_.back()};
  free_tracks_.pop_back();
  note.call = served_->Begin({.method = method,
                              .caller = BeginningOf(caller),
                              .track = note.track,
                              .queued_us = queued_us,
                              .begun_us = now_us > 0 ? now_us : Now()});
  return note;
}

void CallNotes::End(const Note& note, int64_t now_us) {
  if (served_ == nullptr) return;
  served_->End(note.call, now_us);
  free_tracks_.push_back(note.track);
}

}  // namespace cohort::actor
