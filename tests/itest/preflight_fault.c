/* For LD_PRELOAD: stops or kills one rank in the preflight of the first attempt,
 * when it is about to meet another one as a pair: it has met all of them.  On
 * one node it then opens memory of the pair's own; over several, Gloo asks for
 * the network interfaces for the second time.
 *
 *   PREFLIGHT_FAULT=STOP:2   rank 2 stops
 *   PREFLIGHT_FAULT=KILL:2   it is killed */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_due(const char *kind) {
  const char *fault = getenv("PREFLIGHT_FAULT");
  const char *rank = getenv("RANK");
  const char *attempt = getenv("COHORT_ATTEMPT");
  char due[64];
  if (fault == NULL || rank == NULL || attempt == NULL) return 0;
  snprintf(due, sizeof(due), "%s:%s", kind, rank);
  return strcmp(attempt, "1") == 0 && strcmp(fault, due) == 0 &&
         strcmp(program_invocation_short_name, "cohort-preflight") == 0;
}

static void meet_pair(void) {
  if (is_due("STOP")) kill(getpid(), SIGSTOP);
  if (is_due("KILL")) kill(getpid(), SIGKILL);
}

int open(const char *path, int flags, ...) {
  int (*real)(const char *, int, mode_t) = NULL;
  va_list rest;
  mode_t mode;
  va_start(rest, flags);
  mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (strstr(path, "/preflight/pair-") != NULL) meet_pair();
  *(void **)&real = dlsym(RTLD_NEXT, "open");
  return real(path, flags, mode);
}

int getifaddrs(struct ifaddrs **list) {
  static int calls = 0;
  int (*real)(struct ifaddrs **) = NULL;
  if (++calls == 2) meet_pair();
  *(void **)&real = dlsym(RTLD_NEXT, "getifaddrs");
  return real(list);
}
