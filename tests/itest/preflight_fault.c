/* For LD_PRELOAD: stops or kills one rank in the preflight of the first attempt,
 * when cohort-preflight asks for its network interfaces: it has met the others.
 *
 *   PREFLIGHT_FAULT=STOP:2:1   rank 2 stops when it asks for the first time
 *   PREFLIGHT_FAULT=KILL:2:1   it is killed */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <ifaddrs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_due(const char *kind, int call) {
  const char *fault = getenv("PREFLIGHT_FAULT");
  const char *rank = getenv("RANK");
  const char *attempt = getenv("COHORT_ATTEMPT");
  char due[64];
  if (fault == NULL || rank == NULL || attempt == NULL) return 0;
  snprintf(due, sizeof(due), "%s:%s:%d", kind, rank, call);
  return strcmp(attempt, "1") == 0 && strcmp(fault, due) == 0 &&
         strcmp(program_invocation_short_name, "cohort-preflight") == 0;
}

int getifaddrs(struct ifaddrs **list) {
  static int calls = 0;
  int (*real)(struct ifaddrs **) = NULL;
  ++calls;
  if (is_due("STOP", calls)) kill(getpid(), SIGSTOP);
  if (is_due("KILL", calls)) kill(getpid(), SIGKILL);
  *(void **)&real = dlsym(RTLD_NEXT, "getifaddrs");
  return real(list);
}
