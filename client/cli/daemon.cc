#include "client/cli/daemon.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

#include "common/status_util.h"

namespace cohort::cli {

absl::Status BecomeDaemon(const std::string& name,
                          const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = self.parent_path() / name;
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return ErrnoStatus(errno,
                     absl::StrCat("run ", program,
                                  ", which is installed beside this program"));
}

}  // namespace cohort::cli
