/* A libnccl of version COHORT_BARE_VERSION that has nothing but its version:
   what nccl_library_test opens by dlopen. */

int ncclGetVersion(int* version);

int ncclGetVersion(int* version) {
  *version = COHORT_BARE_VERSION;
  return 0;
}
