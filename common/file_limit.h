#pragma once

#include <sys/resource.h>

namespace cohort {

// The limit of open files (RLIMIT_NOFILE) of this process.  Thread-safe, but
// RaiseFileLimit, which main calls before there are threads.

// Takes all that the hard limit allows: a soft one of 1,024, which many systems
// give, is for programs that call select().
void RaiseFileLimit();

// What this process was started with, for programs that it starts.
rlimit InheritedFileLimit();

// How many descriptors are kept for files and for what the process opens
// itself: connections get none of the last ones.
int FilesKeptFree();

}  // namespace cohort
