#pragma once

namespace cohort {

// SIGTERM and SIGINT as something that main waits for.
//
// Made first thing in main, before any thread: blocks both signals in this
// thread and all that it starts, and ignores SIGPIPE, so that a peer that went
// away is an error of a write.  Thread-safe.
class StopSignal {
 public:
  StopSignal();

  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Blocks until one of them came, or Raise was called; says which (SIGTERM for
  // Raise).
  int Wait();
  // As if a signal had come: for a daemon that has to end by itself.
  void Raise();
};

}  // namespace cohort
