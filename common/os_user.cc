#include "common/os_user.h"

#include <pwd.h>
#include <unistd.h>

#include <string>

namespace cohort {

std::string OsUserName() {
  char text[16 << 10];
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) != 0 ||
      found == nullptr || found->pw_name == nullptr) {
    return std::to_string(geteuid());
  }
  return found->pw_name;
}

}  // namespace cohort
