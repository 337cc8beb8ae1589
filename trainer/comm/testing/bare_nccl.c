/* A libnccl of version COHORT_BARE_VERSION that has nothing but its version, and
   with COHORT_WHOLE the other symbols, none of which works: what
   nccl_library_test opens by dlopen. */

int ncclGetVersion(int* version);

int ncclGetVersion(int* version) {
  *version = COHORT_BARE_VERSION;
  return 0;
}

#ifdef COHORT_WHOLE
#define COHORT_SYMBOL(name) \
  int name(void);           \
  int name(void) { return 3; }
COHORT_SYMBOL(ncclGetErrorString)
COHORT_SYMBOL(ncclGetLastError)
COHORT_SYMBOL(ncclGetUniqueId)
COHORT_SYMBOL(ncclCommInitRankConfig)
COHORT_SYMBOL(ncclCommGetAsyncError)
COHORT_SYMBOL(ncclCommFinalize)
COHORT_SYMBOL(ncclCommDestroy)
COHORT_SYMBOL(ncclCommAbort)
COHORT_SYMBOL(ncclAllReduce)
COHORT_SYMBOL(ncclBroadcast)
COHORT_SYMBOL(ncclGroupStart)
COHORT_SYMBOL(ncclGroupEnd)
#endif
